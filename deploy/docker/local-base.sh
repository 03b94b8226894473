#!/usr/bin/env bash
# Makes the images that docker compose would pull, where no image registry can be reached: a base with
# Python from Debian's packages, and on top of it Prometheus, Alertmanager, Redis and a collector of traces
# (local.Dockerfile). Grafana is in no package: the stack is without it. Needs root, docker and debootstrap.
#
#     deploy/docker/local-base.sh [--env FILE]
#
# Prints the variables that make docker-compose.yml use them; --env FILE writes them there (.env is read by
# itself). This machine's certificates and the wheels of its pip find-links go along, so that what pip can
# install here it can install in an image.
set -euo pipefail
cd "$(dirname "$0")/../.."

SUITE=${SUITE:-bookworm}
MIRROR=${MIRROR:-http://deb.debian.org/debian}
BASE=${TRITONKIT_BASE:-tritonkit/base:local}
SERVICES=(prometheus alertmanager redis collector)
CERTIFICATES=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
PACKAGES=python3,python3-venv,python3-pip,libpython3.11,ca-certificates

settings=
while (($#)); do
  case $1 in
    --env) settings=${2:?--env needs a file}; shift 2 ;;
    *) echo "local-base.sh: unknown argument $1 (there is --env FILE)" >&2; exit 2 ;;
  esac
done

refuse() { echo "local-base.sh: $1" >&2; exit 4; }
((EUID == 0)) || refuse "debootstrap needs root; do: sudo $0"
command -v debootstrap >/dev/null || refuse "debootstrap is missing; do: apt-get install debootstrap"
command -v docker >/dev/null || refuse "docker is missing; do: apt-get install docker.io docker-compose"
docker info >/dev/null 2>&1 || refuse "the docker daemon does not answer; do: systemctl start docker, or dockerd &"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! docker image inspect "$BASE" >/dev/null 2>&1; then
  echo "making $BASE with debootstrap ..." >&2
  debootstrap --variant=minbase --include="$PACKAGES" "$SUITE" "$work/root" "$MIRROR" >"$work/log" 2>&1 \
    || { tail -n 5 "$work/log" >&2; refuse "debootstrap failed"; }
  rm -rf "$work"/root/var/cache/apt/archives/*.deb "$work"/root/var/lib/apt/lists/*
  cp "$CERTIFICATES" "$work/root/etc/ssl/certs/ca-certificates.crt"
  printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' >"$work/root/etc/pip.conf"
  tar -C "$work/root" -c . | docker import - "$BASE" >/dev/null
fi

mkdir "$work/empty"
for service in "${SERVICES[@]}"; do
  image=tritonkit/$service:local
  docker image inspect "$image" >/dev/null 2>&1 && continue
  echo "making $image from packages ..." >&2
  docker build --quiet --network host --tag "$image" --target "$service" --build-arg "BASE=$BASE" \
    --file deploy/docker/local.Dockerfile "$work/empty" >/dev/null || refuse "docker could not make $image"
done

# A build of PyTorch that only this machine's find-links folders have.
for folder in $(python3 -m pip config get global.find-links 2>/dev/null || true) ${PIP_FIND_LINKS:-}; do
  if [[ -d $folder ]]; then cp --update --no-preserve=ownership "$folder"/torch-*.whl deploy/docker/wheels/ 2>/dev/null || true; fi
done

variables="TRITONKIT_BASE=$BASE
TRITONKIT_BUILD_NETWORK=host"
for service in "${SERVICES[@]}"; do
  variables+="
TRITONKIT_${service^^}_IMAGE=tritonkit/$service:local"
done
# Compose wants an image also of what it does not start.
variables+="
GRAFANA_REPLICAS=0
TRITONKIT_GRAFANA_IMAGE=$BASE"
if [[ -n $settings ]]; then echo "$variables" >"$settings"; else echo "$variables"; fi
