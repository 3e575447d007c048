# Adds two whole numbers, whatever their signs.
add() {
    echo $(($1 + $2))
}
