# bash completion for bareboat
_bareboat() {
  local line=$COMP_LINE words=() word i
  # bash cuts words also at = and : (COMP_WORDBREAKS)
  for ((i = 0; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ $i == 0 || $line == [[:blank:]]* ]]; then
      line=${line#"${line%%[![:blank:]]*}"}
      words+=("$word")
    else
      words[${#words[@]} - 1]+=$word
    fi
    line=${line#"$word"}
  done
  local current=${words[${#words[@]} - 1]} last=${COMP_WORDS[COMP_CWORD]}
  [[ $last == [=:]* ]] && last=
  local before=${current%"$last"} value=$current found
  [[ $current == --*=* ]] && value=${current#*=}
  COMPREPLY=()
  while IFS= read -r found; do
    found=${found%%$'\t'*}
    case $found in
      :files)
        compopt -o filenames
        while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -f -- "$value")
        ;;
      :directories)
        compopt -o filenames
        while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -d -- "$value")
        ;;
      *) COMPREPLY+=("${found#"$before"}") ;;
    esac
  done < <("${words[0]}" --complete "${words[@]:1}" 2> /dev/null)
}
complete -F _bareboat bareboat
