# Adds two whole numbers, whatever their signs.
add() {
    echo $(($1 + $2))
}

# A whole number and itself.
twice_of() {
    add "$1" "$1"
}
