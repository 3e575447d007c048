check zero "$(add 0 0)" 0
check nothing_added "$(add 5 0)" 5
check one_and_one "$(add 1 1)" 2
