# Sourced by scripts/test: a PostgreSQL server of our own for the time of the tests.
#
# postgres_start   makes a throwaway cluster that listens on a unix socket only, and exports TOBAN_TEST_POSTGRES with its
#                  URL. Without server binaries it says so and leaves the variable unset: those tests are skipped. A
#                  variable that is set already is left alone.
# postgres_stop    ends that server and removes all of it. Harmless when nothing was started.

toban_pg_dir=

postgres_start() {
    if [ -n "${TOBAN_TEST_POSTGRES:-}" ]; then
        echo "postgres: using the server that TOBAN_TEST_POSTGRES names"
        return 0
    fi
    toban_pg_bin=$(toban_pg_find)
    if [ -z "$toban_pg_bin" ]; then
        echo "postgres: skipped, no server binaries here (Debian: apt install postgresql)"
        return 0
    fi
    toban_pg_user=
    if [ "$(id -u)" -eq 0 ]; then
        # The server refuses to run as root.
        for toban_pg_user in postgres nobody ''; do
            if [ -n "$toban_pg_user" ] && id "$toban_pg_user" >/dev/null 2>&1; then break; fi
        done
        if [ -z "$toban_pg_user" ]; then
            echo "postgres: skipped, this is root and there is no user postgres or nobody"
            return 0
        fi
    fi
    # Not under TMPDIR: the path of a socket has to be short.
    toban_pg_dir=$(mktemp -d /tmp/toban-pg.XXXXXX) || return 1
    if [ -n "$toban_pg_user" ]; then chown "$toban_pg_user" "$toban_pg_dir"; fi

    if toban_pg_as "$toban_pg_bin/initdb" -D "$toban_pg_dir/data" -U toban -A trust -E UTF8 \
            --locale=C --no-sync >"$toban_pg_dir/log" 2>&1 &&
        toban_pg_as "$toban_pg_bin/pg_ctl" -D "$toban_pg_dir/data" -l "$toban_pg_dir/data/log" \
            -w -t 60 -o "-k $toban_pg_dir -c listen_addresses= -c fsync=off -c full_page_writes=off" \
            start >>"$toban_pg_dir/log" 2>&1
    then
        TOBAN_TEST_POSTGRES="postgresql:///postgres?host=$toban_pg_dir&user=toban"
        export TOBAN_TEST_POSTGRES
        echo "postgres: $("$toban_pg_bin/postgres" --version) in $toban_pg_dir, on a unix socket"
        return 0
    fi
    echo "postgres: cannot start a server:" >&2
    tail -n 5 "$toban_pg_dir/log" >&2
    postgres_stop
    return 1
}

postgres_stop() {
    [ -n "$toban_pg_dir" ] || return 0
    toban_pg_pid=$(head -n 1 "$toban_pg_dir/data/postmaster.pid" 2>/dev/null || :)
    if [ -n "$toban_pg_pid" ]; then
        # Immediate shutdown: nothing of it is kept.
        kill -QUIT "$toban_pg_pid" 2>/dev/null || :
        toban_pg_left=100
        while kill -0 "$toban_pg_pid" 2>/dev/null && [ "$toban_pg_left" -gt 0 ]; do
            toban_pg_left=$((toban_pg_left - 1))
            sleep 0.1
        done
        kill -KILL "$toban_pg_pid" 2>/dev/null || :
    fi
    rm -rf "$toban_pg_dir"
    toban_pg_dir=
    unset TOBAN_TEST_POSTGRES
}

# The directory of the newest server's binaries, or nothing.
toban_pg_find() {
    toban_pg_newest=0
    toban_pg_found=
    for toban_pg_candidate in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql@*/bin \
        /usr/local/pgsql/bin "$(dirname "$(command -v initdb 2>/dev/null || echo /)")"; do
        if [ -x "$toban_pg_candidate/initdb" ] && [ -x "$toban_pg_candidate/postgres" ]; then
            # "postgres (PostgreSQL) 15.9 (Debian …)", "postgres (PostgreSQL) 17beta1"
            toban_pg_version=$("$toban_pg_candidate/postgres" --version | sed 's/^[^0-9]*\([0-9]*\).*/\1/')
            if [ "${toban_pg_version:-0}" -gt "$toban_pg_newest" ]; then
                toban_pg_newest=$toban_pg_version
                toban_pg_found=$toban_pg_candidate
            fi
        fi
    done
    echo "$toban_pg_found"
}

# Runs a command as the user who owns the cluster, in a directory that this user may enter.
toban_pg_as() {
    (
        cd / || exit 1
        if [ -z "$toban_pg_user" ]; then
            exec "$@"
        elif command -v setpriv >/dev/null 2>&1; then
            exec setpriv --reuid="$toban_pg_user" --regid="$(id -g "$toban_pg_user")" --clear-groups "$@"
        else
            exec runuser -u "$toban_pg_user" -- "$@"
        fi
    )
}
