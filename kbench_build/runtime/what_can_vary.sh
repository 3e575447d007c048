#!/bin/sh
# Prints what an image allows a run to vary, one line each:
#
#   locale <name>      a locale that the image holds
#   faketime <path>    the library that shifts the clock of whatever loads it
#   java <path>        a Java that takes its locale from its own options
#
# Reads only, and needs nothing but a shell.
if command -v locale >/dev/null 2>&1; then
  locale -a 2>/dev/null | while IFS= read -r name; do
    printf 'locale %s\n' "$name"
  done
else
  for folder in /usr/lib/locale/*/; do
    [ -d "$folder" ] || continue
    name=${folder%/}
    printf 'locale %s\n' "${name##*/}"
  done
fi
for library in /usr/lib/*/faketime/libfaketime.so.1 /usr/lib/faketime/libfaketime.so.1 \
  /usr/lib64/faketime/libfaketime.so.1 /usr/local/lib/faketime/libfaketime.so.1; do
  if [ -f "$library" ]; then
    printf 'faketime %s\n' "$library"
    break
  fi
done
found=$(command -v java 2>/dev/null) && printf 'java %s\n' "$found"
exit 0
