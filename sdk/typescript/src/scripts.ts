// The programs behind `session.files` and `session.waitForPort`, for any POSIX
// shell. The Python client has the same.
//
// Each runs as `/bin/sh -c SCRIPT trl ARGUMENT…` in a session of its own. Paths are
// absolute, so none can look like an option. A program that fails ends with the
// system's message on stderr, in the locale C.

/** Writes the file $1 from byte $2 on, counted from 1. */
export const read = `
if [ "$2" = 1 ]; then
    exec cat -- "$1"
fi
exec tail -c +"$2" -- "$1"
`;

/**
 * Replaces the file $1 by its stdin, by way of a new file in the same directory
 * with the name $2. $3 is its mode; empty: that of the old file, or what umask
 * leaves. What is not a regular file, such as a device, is written to.
 */
export const write = `
fail() {
    echo "$file: $1" >&2
    exit 1
}
file=$1 mode=$3
links=0
while [ -L "$file" ]; do
    links=$((links + 1))
    [ $links -le 40 ] || fail 'Too many levels of symbolic links'
    target=$(readlink -- "$file" && echo .) || exit
    target=\${target%??}
    case $target in
    /*) file=$target ;;
    *) file=\${file%/*}/$target ;;
    esac
done
new=\${file%/*}/$2
ls -d -- "\${file%/*}/." >/dev/null || exit
[ -d "$file" ] && fail 'Is a directory'
if [ -e "$file" ]; then
    [ -w "$file" ] || fail 'Permission denied'
    if [ ! -f "$file" ]; then
        exec cat >"$file"
    fi
    owner=$(stat -c %u:%g -- "$file") || exit
    mode=\${mode:-$(stat -c %a -- "$file")}
fi
cleanup() {
    trap '' HUP INT TERM # the daemon also sends SIGTERM to processes that start meanwhile
    rm -f -- "$new"
}
trap cleanup EXIT
trap 'cleanup; exit 1' HUP INT TERM
set -C
cat >"$new" || exit
if [ -n "$owner" ] && [ "$owner" != "$(stat -c %u:%g -- "$new")" ]; then
    chown "$owner" -- "$new" || exit
fi
[ -z "$mode" ] || chmod "$mode" -- "$new" || exit
mv -f -- "$new" "$file"
`;

/**
 * Writes the entries of the directory $1, each as "TYPE MODE SIZE SECONDS NAME"
 * and a NUL. TYPE is f, d, l or another letter.
 */
export const list = `
ls -- "$1/." >/dev/null || exit
if find "$1/." -prune -printf '' 2>/dev/null; then
    exec find "$1/." -mindepth 1 -maxdepth 1 -printf '%y %m %s %T@ %f\\0'
fi
cd -- "$1" || exit
for name in * .[!.]* ..?*; do
    if [ -L "$name" ]; then
        type=l
    elif [ -d "$name" ]; then
        type=d
    elif [ -f "$name" ]; then
        type=f
    elif [ -e "$name" ]; then
        type=o
    else
        continue
    fi
    facts=$(stat -c '%a %s %Y' -- "$name" 2>/dev/null) || continue
    printf '%s %s %s\\0' "$type" "$facts" "$name"
done
`;

/** Fails if there is no $1. */
export const exists = `
[ -e "$1" ] || [ -L "$1" ] || ls -d -- "$1" >/dev/null
`;

/** Makes the directory $1, with those above it. */
export const mkdir = `
exec mkdir -p -- "$1"
`;

/** Removes the file $1, or the empty directory, or with $2 the whole tree. */
export const remove = `
if [ -n "$2" ]; then
    ls -d -- "$1" >/dev/null || exit
    exec rm -rf -- "$1"
fi
if [ -d "$1" ] && [ ! -L "$1" ]; then
    exec rmdir -- "$1"
fi
exec rm -- "$1"
`;

/**
 * Waits until a socket listens on the port $1, in hexadecimal. The other
 * arguments are addresses of which it must have one, as the kernel writes them;
 * without any, every address will do.
 */
export const port = `
port=$1
shift
addresses=" $* "
listening() {
    for table in /proc/net/tcp /proc/net/tcp6; do
        [ -r "$table" ] || continue
        while read -r _ socket _ state _; do
            [ "$state" = 0A ] && [ "\${socket##*:}" = "$port" ] || continue
            case $addresses in
            '  ' | *" \${socket%:*} "*) return 0 ;;
            esac
        done <"$table"
    done
    return 1
}
until listening; do
    sleep 0.1 2>/dev/null || sleep 1
done
`;
