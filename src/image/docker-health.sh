#!/bin/sh
# Is the server well? It is if it answers PING, or asks for a password or a certificate first, on 6379 or wherever
# else it listens: on another port, with TLS, on a Unix socket.
#
# One that is about to start is asked again until the time is up, so that a container is healthy as soon as its
# server answers, however long docker waits between two checks. While the server loads its data, it does not answer.

SECONDS_MAX=2

answers() { # how to connect
  case "$(timeout 1 redis-cli "$@" ping 2>&1)" in
    PONG* | NOAUTH* | NOPERM* | *CertificateRequired*) return 0 ;;
  esac
  return 1
}

# The ports of sockets in the state 0A, listening, in hexadecimal digits: those of the server's user, as the
# network may be that of the machine, with other servers.
ports() {
  awk -v user="$(stat -c %u /proc/1)" '$4 == "0A" && $8 == user { sub(/.*:/, "", $2); print $2 }' \
    /proc/net/tcp /proc/net/tcp6 2>/dev/null | sort -u
}

# The Unix sockets that are listened on.
sockets() {
  awk '$4 == "00010000" && $8 ~ /^\// { print $8 }' /proc/net/unix 2>/dev/null | sort -u
}

is_well() {
  answers -p "${KEYFAST_PORT:-6379}" && return 0
  for port in $(ports); do
    answers -p "$((0x$port))" || answers -p "$((0x$port))" --tls --insecure && return 0
  done
  for socket in $(sockets); do
    answers -s "$socket" && return 0
  done
  return 1
}

deadline=$(($(date +%s) + SECONDS_MAX))
until is_well; do
  [ "$(date +%s)" -lt "$deadline" ] || exit 1
  sleep 0.05
done
