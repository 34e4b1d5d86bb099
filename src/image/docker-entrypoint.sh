#!/bin/sh
# What runs first in a container, by the rules of the official image of Redis: options and the name of a
# configuration file go to the server, any other program is executed. A server that would be root becomes the
# user redis, to whom the working directory is given before.
set -e

case "$1" in
  -* | *.conf) set -- redis-server "$@" ;;
esac

case "$1" in
  redis-server | valkey-server | keyfast)
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
