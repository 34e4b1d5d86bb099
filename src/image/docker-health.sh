#!/bin/sh
# Is the server well? It is if it answers PING, or asks for a password first, on 6379 or on any other port that is
# listened on in this container. While it loads its data, it is not there yet.

answers() { # port
  case "$(timeout 1 redis-cli -p "$1" ping 2>&1)" in
    PONG* | NOAUTH* | NOPERM*) return 0 ;;
  esac
  return 1
}

# The ports of sockets in the state 0A, listening, in hexadecimal digits; what listens on 127.0.0.11 is the
# engine's own server of names.
listening() {
  awk '$4 == "0A" && $2 !~ /^0B00007F/ { sub(/.*:/, "", $2); print $2 }' /proc/net/tcp /proc/net/tcp6 2>/dev/null |
    sort -u
}

answers "${KEYFAST_PORT:-6379}" && exit 0
for port in $(listening); do
  answers "$((0x$port))" && exit 0
done
exit 1
