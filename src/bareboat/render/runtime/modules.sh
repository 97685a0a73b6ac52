# shellcheck shell=bash disable=SC1090,SC2154
# The site's software, by the command `module`.
# Expects: $site_modules, $HERE.

load_modules() {
  local file
  command -v module > /dev/null || for file in /etc/profile.d/{modules,lmod,z00_lmod}.sh; do
    if [ -r "$file" ]; then
      set +u
      . "$file"
      set -u
      break
    fi
  done
  command -v module > /dev/null || {
    printf 'bareboat: the command "module" does not exist%s\n' "$HERE" >&2
    return 3
  }
  module load "${site_modules[@]}"
}
