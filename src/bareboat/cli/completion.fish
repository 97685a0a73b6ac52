# fish completion for bareboat
function __bareboat_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l value (string replace -r -- '^--[^=]*=' '' $words[-1])
    set -l flag (string match -r -- '^--[^=]*=' $words[-1])
    for found in ($words[1] --complete $words[2..-1] 2>/dev/null)
        switch $found
            case ':files'
                __fish_complete_path $value | string replace -r -- '^' "$flag"
            case ':directories'
                __fish_complete_directories $value | string replace -r -- '^' "$flag"
            case '*'
                echo $found
        end
    end
end
complete -c bareboat -f -a '(__bareboat_complete)'
