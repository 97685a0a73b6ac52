# shellcheck shell=bash disable=SC1090,SC2154
# The site's software, by the command `module`.
# Expects: $site_modules, $HERE.

find_module() { # bareboat doctor --compute asks it, too
  local file
  command -v module > /dev/null || for file in /etc/profile.d/{modules,lmod,z00_lmod}.sh; do
    if [ -r "$file" ]; then
      set +u
      . "$file"
      set -u
      break
    fi
  done
  command -v module > /dev/null
}

load_modules() {
  if ! find_module; then
    printf 'bareboat: the command "module" does not exist%s\n  try: %s\n' "$HERE" \
      'remove modules, or use a partition whose nodes have the command' >&2
    return 3
  elif ! module load "${site_modules[@]}"; then
    printf 'bareboat: module load %s failed%s\n  try: module avail   # there; then correct modules\n' \
      "${site_modules[*]}" "$HERE" >&2
    return 3
  fi
}
