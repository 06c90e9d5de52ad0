#!/usr/bin/env bash
# Show the runs of docker_run_master.sh's host in a browser.
set -euo pipefail
image=${POTLUCK_IMAGE:-${IMAGE_NAME:-potluck}}
container=potluck-dashboard

usage() {
  cat <<END
usage: docker_run_dashboard.sh [ADDRESS]
  ADDRESS is where this computer shows the page: 127.0.0.1 by default, for this computer only;
  its own address, or 0.0.0.0, lets other computers look, with the password
  variables: POTLUCK_DASHBOARD_PASSWORD (the host's password by default), POTLUCK_IMAGE or IMAGE_NAME (potluck by default)
END
}
fail() {
  printf 'error: %s\n  fix: %s\n' "$1" "$2" >&2
  exit 1
}

case "${1:-}" in
-h | --help) usage; exit ;;
esac
address=${1:-127.0.0.1}
[[ $# -le 1 && $address =~ ^[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+$ ]] || { usage >&2; exit 2; }
export POTLUCK_DASHBOARD_PASSWORD=${POTLUCK_DASHBOARD_PASSWORD:-}
command -v docker >/dev/null || fail "docker is not installed" "see https://docs.docker.com/engine/install"
docker image inspect "$image" >/dev/null 2>&1 ||
  fail "there is no image $image, or docker does not run" "docker build --file docker/Dockerfile --tag $image ."
! docker container inspect "$container" >/dev/null 2>&1 ||
  fail "the container $container exists already" "docker start $container, or for another address: docker rm --force $container"

docker run --detach --name "$container" --restart unless-stopped --no-healthcheck \
  --publish "$address:8501:8501" --env POTLUCK_DASHBOARD_PASSWORD \
  --volume potluck-host-home:/home/potluck/.potluck:ro --volume potluck-runs:/runs:ro \
  "$image" dashboard --address 0.0.0.0
echo "the page:     http://$address:8501"
echo "its password: docker logs $container"
