#!/bin/sh
# What runs first in a container, by the rules of the official image of Redis: options and the name of a
# configuration file go to the server, any other program is executed. A server that would be root becomes the
# user redis, to whom the working directory is given before.
set -e

case "$1" in
  -* | *.conf) set -- redis-server "$@" ;;
esac

# The address by which the machine outside reaches a published port: the gateway of a bridge, at the other end of
# a pair of interfaces. Nothing in a network that is that of the machine itself, or in one where the gateway is a
# router for other machines.
host_address() {
  local interface gateway kind
  read -r interface gateway <<EOF
$(awk '$2 == "00000000" { print $1, $3; exit }' /proc/net/route 2>/dev/null)
EOF
  kind=/sys/class/net/$interface
  [ -n "$gateway" ] && [ -r "$kind/iflink" ] || return 0
  [ "$(cat "$kind/iflink")" != "$(cat "$kind/ifindex")" ] && ! grep -q DEVTYPE "$kind/uevent" || return 0
  # The kernel prints the bytes of an address from the last to the first.
  echo "$gateway" | sed 's/\(..\)\(..\)\(..\)\(..\)/0x\4 0x\3 0x\2 0x\1/' | xargs printf '%d.%d.%d.%d'
}

case "$1" in
  redis-server | valkey-server | keyfast)
    # Of the commands for local clients (--enable-clock-command local) those of the machine outside are clients, too.
    export KEYFAST_LOCAL_ADDRESSES="${KEYFAST_LOCAL_ADDRESSES-$(host_address)}"
    # What is saved is for the server alone, unless the umask says otherwise.
    [ "$(umask)" != 0022 ] || umask 0077
    # A container that may not change users (--cap-drop ALL) keeps its root, which has no rights there.
    if [ "$(id -u)" = 0 ] && su -s /bin/sh -c : redis 2>/dev/null; then
      # What is mounted to be read only stays whose it is. The root of the image is no directory for data.
      [ "$(pwd)" = / ] || find . ! -user redis -exec chown redis {} + 2>/dev/null || :
      # Also process 1 is replaced: the su of busybox does not wait for a child process.
      exec su -s /bin/sh -c 'exec "$0" "$@"' -- redis "$@"
    fi
    ;;
esac

exec "$@"
