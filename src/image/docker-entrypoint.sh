#!/bin/sh
# What runs first in a container, by the rules of the official images of Redis and Valkey: options and the name of a
# configuration file go to the server, any other program is executed. A server that would be root becomes the
# user redis, to whom the working directory is given before.
#
# Other images take more from variables and from mounted folders. What means the same here works; of the rest, each
# start says on standard error what has no effect.
set -e

case "$1" in
  -* | *.conf) set -- redis-server "$@" ;;
esac

# A server has one of these names, with or without a folder before it; `keyfast cli` is the client.
case "${1##*/} ${2-}" in
  'keyfast cli') exec "$@" ;;
  'redis-server '* | 'valkey-server '* | 'keyfast '*) ;;
  *) exec "$@" ;;
esac

say() { echo "docker-entrypoint.sh: $*" >&2; }

# The value of a variable, if one of this name is set: REDIS_NAME or VALKEY_NAME, as in bitnami's images.
value_of() { # NAME
  value=
  for name in "REDIS_$1" "VALKEY_$1"; do
    eval "value=\${$name:-}"
    [ -z "$value" ] || return 0
  done
  return 1
}

# Gives another name to a variable, unless one of that name has a value.
take() { # NAME, the other name
  if value_of "$1" && eval "[ -z \"\${$2:-}\" ]"; then export "$2=$value"; fi
}

ignored=
ignore() { # names...
  for name; do
    if eval "[ -n \"\${$name:-}\" ]"; then ignored="$ignored $name"; fi
  done
}

take PASSWORD REDIS_PASSWORD
take PASSWORD_FILE REDIS_PASSWORD_FILE
take PORT_NUMBER KEYFAST_PORT
take AOF_ENABLED KEYFAST_APPENDONLY
take ACLFILE KEYFAST_ACLFILE
take IO_THREADS KEYFAST_IO_THREADS
# TLS of bitnami's images. Where both ports would be 6379, TLS alone has it.
if value_of TLS_ENABLED; then
  case "$value" in
    1 | [Yy][Ee][Ss] | [Tt][Rr][Uu][Ee])
      take TLS_PORT_NUMBER KEYFAST_TLS_PORT
      take TLS_CERT_FILE KEYFAST_TLS_CERT_FILE
      take TLS_KEY_FILE KEYFAST_TLS_KEY_FILE
      take TLS_KEY_FILE_PASS KEYFAST_TLS_KEY_FILE_PASS
      take TLS_CA_FILE KEYFAST_TLS_CA_CERT_FILE
      value_of TLS_CA_FILE || take TLS_CA_DIR KEYFAST_TLS_CA_CERT_DIR
      take TLS_DH_PARAMS_FILE KEYFAST_TLS_DH_PARAMS_FILE
      take TLS_AUTH_CLIENTS KEYFAST_TLS_AUTH_CLIENTS
      export "KEYFAST_TLS_PORT=${KEYFAST_TLS_PORT:-6379}"
      [ "${KEYFAST_PORT:-6379}" != "$KEYFAST_TLS_PORT" ] || export KEYFAST_PORT=0
      ;;
  esac
fi
if [ "${ALLOW_EMPTY_PASSWORD:-}" = no ] && ! value_of PASSWORD && ! value_of PASSWORD_FILE; then
  say 'ALLOW_EMPTY_PASSWORD is no, and REDIS_PASSWORD is not set'
  exit 1
fi

# Further options, as words: of Valkey's image, bitnami's and redis-stack's. The last value of a parameter counts.
set -f
# shellcheck disable=SC2086 # they are to be split
set -- "$@" ${VALKEY_EXTRA_FLAGS:-} ${REDIS_EXTRA_FLAGS:-} ${REDIS_ARGS:-}
if value_of DISABLE_COMMANDS; then
  blanks=$IFS
  IFS=' ,'
  for command in $value; do set -- "$@" --rename-command "$command" ''; done
  IFS=$blanks
fi
set +f

# Initial data, in the order of their names, as images of databases take them.
for file in /docker-entrypoint-initdb.d/*; do
  case "$file" in
    *.redis | *.resp | *.rdb | *.json) set -- "$@" --init "$file" ;;
  esac
done

# The folders for data of these images, where one is mounted. This image has none of them.
if [ "$(pwd)" = /data ]; then
  for folder in "${REDIS_DATA_DIR:-}" /bitnami/redis/data /bitnami/valkey/data; do
    if [ -n "$folder" ] && [ -d "$folder" ]; then
      cd "$folder"
      break
    fi
  done
fi

ignore REDISEARCH_ARGS REDISJSON_ARGS REDISTIMESERIES_ARGS REDISBLOOM_ARGS REDISGEARS_ARGS
for of in REDIS VALKEY; do
  ignore "${of}_REPLICATION_MODE" "${of}_MASTER_HOST" "${of}_PRIMARY_HOST" "${of}_RDB_POLICY" \
    "${of}_RDB_POLICY_DISABLED" "${of}_OVERRIDES_FILE" "${of}_IO_THREADS_DO_READS"
done
[ -z "$ignored" ] || say "these variables have no effect in this image, options of the server have:$ignored"
for file in /redis-stack.conf /opt/bitnami/*/etc/*.conf /opt/bitnami/*/mounted-etc/*.conf; do
  [ "$file" = "${2:-}" ] || [ ! -f "$file" ] || say "$file is not read: name it behind redis-server"
done

# What is saved is for the server alone, unless the umask says otherwise.
[ "$(umask)" != 0022 ] || umask 0077
# A container that may not change users (--cap-drop ALL) keeps its root, which has no rights there.
if [ -z "${SKIP_DROP_PRIVS:-}" ] && [ "$(id -u)" = 0 ] && su -s /bin/sh -c : redis 2>/dev/null; then
  # What is mounted to be read only stays whose it is. The root of the image is no directory for data.
  [ -n "${SKIP_FIX_PERMS:-}" ] || [ "$(pwd)" = / ] ||
    find . ! -user redis -exec chown redis {} + 2>/dev/null || :
  # Also process 1 is replaced: the su of busybox does not wait for a child process.
  exec su -s /bin/sh -c 'exec "$0" "$@"' -- redis "$@"
fi

exec "$@"
