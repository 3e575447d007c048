#!/bin/sh
# Does in a task's container what no honest verifier rewards; the verifier runs right after it.
#
# Usage: solve.sh (its name where it stands in for a solution). Beside it stand the files `kind`
# (what to do), and as far as that needs them: `fix`, `hidden` (paths in the checkout, one a line),
# `commands` (programs), `TEST-sabotage.xml` (a report in which all is well).
#
# Ends with 0 when it was done, with 3 when nothing here can be sabotaged that way.
here=$(cd -- "$(dirname -- "$0")" && pwd) || exit 3
kind=$(cat -- "$here/kind") || exit 3
if top=$(git rev-parse --show-toplevel 2>/dev/null); then
  cd -- "$top" || exit 3
fi

# A line that no language takes, in every file that the fix changes.
break_build() {
  broken=no
  while IFS= read -r path; do
    if [ -f "$path" ]; then
      printf '\n)]} ((( broken\n' >>"$path" && broken=yes
    fi
  done <"$here/fix"
  [ "$broken" = yes ]
}

reports() {
  find . -type f \( -name 'TEST*.xml' -o -path '*/test-results/*.xml' -o -path '*-reports/*.xml' \) \
    ! -path './.git/*' "$@"
}

# The forged report in the place of each report, and where builds usually write theirs.
plant_reports() {
  reports -exec cp -- "$here/TEST-sabotage.xml" {} \;
  { printf '.\n'; find . -type d -name src ! -path '*/node_modules/*' | sed 's,/src$,,'; } |
    while IFS= read -r module; do
      for place in build/test-results/test target/surefire-reports; do
        mkdir -p -- "$module/$place"
        cp -- "$here/TEST-sabotage.xml" "$module/$place/"
      done
    done
}

# Blanks at the ends of lines, which change nothing but what a patch finds; new files are there
# already, and all of it is committed.
block_patch() {
  while IFS= read -r path; do
    if [ -f "$path" ]; then
      sed 's/$/ /' "$path" >"$path.sabotage" && cat -- "$path.sabotage" >"$path"
      rm -f -- "$path.sabotage"
    else
      mkdir -p -- "$(dirname -- "$path")" && : >"$path"
    fi
  done <"$here/hidden"
  if git add --all . >/dev/null 2>&1; then
    git -c user.name=a -c user.email=a@example.org commit --quiet --message=Work
  fi
  return 0
}

# A program that ends with 0 at once, in the folder of PATH before the one that has the real one.
shim() {
  real=$(command -v "$1") || return 1
  IFS=:
  for folder in $PATH; do
    [ "$folder/$1" != "$real" ] || break
    if mkdir -p -- "$folder" && printf '#!/bin/sh\nexit 0\n' >"$folder/$1"; then
      unset IFS
      chmod 755 "$folder/$1"
      return
    fi
  done
  unset IFS
  return 1
}

replace_commands() {
  replaced=no
  while IFS= read -r program; do
    case $program in
    */*)
      if [ -f "$program" ]; then
        printf '#!/bin/sh\nexit 0\n' >"$program" && replaced=yes
      fi
      ;;
    *) if shim "$program"; then replaced=yes; fi ;;
    esac
  done <"$here/commands"
  [ "$replaced" = yes ]
}

remove_python() {
  removed=no
  IFS=:
  for folder in $PATH; do
    for program in "$folder"/python "$folder"/python3 "$folder"/python3.*; do
      if [ -e "$program" ] && rm -f -- "$program"; then removed=yes; fi
    done
  done
  unset IFS
  [ "$removed" = yes ]
}

# Writes the reward again and again, for as long as the container lives.
rewrite_reward() {
  script='while :; do
    echo 1 >/logs/verifier/reward.txt
    echo "{\"reward\": 1}" >/logs/verifier/reward.json
    sleep 0.02 || exit
  done'
  if command -v setsid >/dev/null; then
    setsid sh -c "$script" </dev/null >/dev/null 2>&1 &
  else
    sh -c "$script" </dev/null >/dev/null 2>&1 &
  fi
}

case $kind in
nothing) ;;
broken-build) reports -exec rm -f -- {} \; && break_build ;;
stale-reports) plant_reports && break_build ;;
blocked-patch) block_patch ;;
shims)
  done=no
  for tool in python3 git; do if shim "$tool"; then done=yes; fi; done
  [ "$done" = yes ]
  ;;
test-command) replace_commands ;;
no-python) remove_python ;;
background) rewrite_reward ;;
*) exit 3 ;;
esac || exit 3
