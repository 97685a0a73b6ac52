#compdef bareboat
_bareboat() {
  local found answer
  local -a names
  answer=$("${words[1]}" --complete "${(@)words[2,CURRENT]}" 2> /dev/null)
  for found in "${(@f)answer}"; do
    case $found in
      :files)
        compset -P '--*='
        _files
        ;;
      :directories)
        compset -P '--*='
        _files -/
        ;;
      ?*) names+=("${${found%%$'\t'*}//:/\\:}:${found#*$'\t'}") ;;
    esac
  done
  ((${#names})) && _describe bareboat names
}
if [ "$funcstack[1]" = _bareboat ]; then _bareboat "$@"; else compdef _bareboat bareboat; fi
