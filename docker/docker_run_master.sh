#!/usr/bin/env bash
# Start a Potluck host in a container that publishes one port.
set -euo pipefail
image=${POTLUCK_IMAGE:-${IMAGE_NAME:-potluck}}
name=$(uname -n)
name=${POTLUCK_NAME:-${name%%.*}}
container=potluck-host

usage() {
  cat <<END
usage: docker_run_master.sh ADDRESS [OPTIONS OF potluck host]
  ADDRESS is this computer's address as the other computers dial it: docker_run_master.sh 192.168.1.10
  variables: POTLUCK_NAME (this machine's name; this computer's name by default), POTLUCK_IMAGE or IMAGE_NAME (potluck by default),
  POTLUCK_GPUS=all (hand the GPUs to the container)
END
}
fail() {
  printf 'error: %s\n  fix: %s\n' "$1" "$2" >&2
  exit 1
}

case "${1:-}" in
-h | --help) usage; exit ;;
esac
[[ ${1:-} =~ ^[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+$ ]] || { usage >&2; exit 2; }
address=$1
shift
command -v docker >/dev/null || fail "docker is not installed" "see https://docs.docker.com/engine/install"
docker image inspect "$image" >/dev/null 2>&1 ||
  fail "there is no image $image, or docker does not run" "docker build --file docker/Dockerfile --tag $image ."
! docker container inspect "$container" >/dev/null 2>&1 ||
  fail "the container $container exists already" "docker start $container, or for other options: docker rm --force $container"

gpus=()
[ -z "${POTLUCK_GPUS:-}" ] || gpus=(--gpus "$POTLUCK_GPUS")
docker run --detach --name "$container" --restart unless-stopped --shm-size 1g --stop-timeout 60 ${gpus[@]+"${gpus[@]}"} \
  --publish 29500:29500 --env "POTLUCK_NAME=$name" \
  --volume potluck-host-home:/home/potluck/.potluck --volume potluck-runs:/runs --volume potluck-data:/data \
  "$image" host --no-mdns --advertise "$address" "$@"
echo "the line for other machines: docker logs $container"
echo "to train:                    docker exec --interactive --tty $container potluck train"
