# shellcheck shell=bash
# Shared by the scripts beside it: the virtual environment, and an engine that answers.
# Sourced, not run. Callers have set -euo pipefail and stand in the project's root.

say() { printf '%s\n' "$*" >&2; }

fail() {
  say "error: $*"
  exit 2
}

# Whether we may install packages: root on a system with apt.
may_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

# need COMMAND PACKAGE…: make sure that the command is there, as root on Debian by installing it.
need() {
  local command=$1
  shift
  ! command -v "$command" >/dev/null || return 0
  may_install || fail "$command is needed: install the package $1"
  say "installing $* (for $command)"
  install_packages "$@"
}

install_packages() {
  if [ -z "${APT_UPDATED:-}" ]; then
    apt-get update -qq
    APT_UPDATED=1
  fi
  DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends -qq "$@" >/dev/null
}

# A Python of 3.11 or newer, on the PATH or named by PYTHON.
find_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11; do
    if [ -n "$candidate" ] && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  fail 'Python 3.11 or newer is needed: set PYTHON to one'
}

# set_up EXTRAS: .venv with this project in it (EXTRAS is empty or [dev]); nothing if it is current.
set_up() {
  local extras=$1 python wanted
  wanted="$(cksum <pyproject.toml) $PWD"
  case "$(cat .venv/installed 2>/dev/null || true)" in
    "$wanted [dev]" | "$wanted $extras") return ;;
  esac
  python=$(find_python)
  need git git
  "$python" -c 'import ensurepip' 2>/dev/null || { may_install && install_packages python3-venv; } ||
    fail "$python can't make virtual environments: install the package python3-venv"
  say 'making the virtual environment .venv'
  "$python" -m venv .venv
  .venv/bin/python -m pip install -qq --disable-pip-version-check --editable ".$extras"
  printf '%s\n' "$wanted $extras" >.venv/installed
}

# ensure_engine: use the container engine that answers; else, as root on Debian, install and start one.
ensure_engine() {
  if .venv/bin/kbench engine >/dev/null 2>&1; then
    return
  fi
  may_install || fail "no container engine answers: $(.venv/bin/kbench engine 2>&1 || true)"
  if ! command -v dockerd >/dev/null; then
    say "no container engine answers: installing Debian's (docker.io, iptables)"
    install_packages docker.io iptables
  fi
  start_engine
}

start_engine() {
  say 'starting the container engine (dockerd)'
  if [ -d /run/systemd/system ]; then
    systemctl start docker
  else
    setsid nohup dockerd >/var/log/dockerd.log 2>&1 </dev/null &
  fi
  local waited=0
  until .venv/bin/kbench engine >/dev/null 2>&1; do
    waited=$((waited + 1))
    [ "$waited" -le 60 ] || fail 'dockerd started but nothing answers after 60 s: see /var/log/dockerd.log'
    sleep 1
  done
}

# How many subtasks at a time: one a core, at most four, since each may take gigabytes.
jobs() {
  local cores
  cores=$(nproc)
  printf '%s\n' "$((cores > 4 ? 4 : cores))"
}

# What the shipped bases are made with, where no registry answers.
ensure_base_tools() {
  need mmdebstrap mmdebstrap
  need npm npm
}
