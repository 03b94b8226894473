# What docker compose would pull, from packages, with the paths and the users of the official images: for machines
# without a registry (local-base.sh). Only `collector` is another program than it stands for.
ARG BASE
FROM ${BASE} AS lists
RUN apt-get update -q

FROM lists AS prometheus
RUN apt-get install -y -q --no-install-recommends prometheus && install -d -o nobody -g nogroup /prometheus
USER nobody
EXPOSE 9090
ENTRYPOINT ["/usr/bin/prometheus"]

FROM lists AS alertmanager
RUN apt-get install -y -q --no-install-recommends prometheus-alertmanager && install -d -o nobody -g nogroup /alertmanager
USER nobody
EXPOSE 9093
ENTRYPOINT ["/usr/bin/prometheus-alertmanager"]

FROM lists AS redis
RUN apt-get install -y -q --no-install-recommends redis-server redis-tools
EXPOSE 6379

# In place of OpenTelemetry's own: takes OTLP at the same ports, prints it, and knows nothing of collector.yml.
FROM ${BASE} AS collector
ARG PIP_INDEX_URL=
ARG PIP_EXTRA_INDEX_URL=
ARG PIP_TRUSTED_HOST=
RUN python3 -m venv /opt/rotel && /opt/rotel/bin/python -m pip install --quiet --no-cache-dir rotel==0.0.1a15 \
 && mv /opt/rotel/lib/python3*/site-packages/rotel/rotel-agent /usr/local/bin/ && chmod 755 /usr/local/bin/rotel-agent \
 && rm -r /opt/rotel
ENV ROTEL_OTLP_GRPC_ENDPOINT=0.0.0.0:4317 ROTEL_OTLP_HTTP_ENDPOINT=0.0.0.0:4318 \
    ROTEL_EXPORTER=blackhole ROTEL_DEBUG_LOG=traces ROTEL_DEBUG_LOG_VERBOSITY=detailed
EXPOSE 4317 4318
# The words are OpenTelemetry's collector's.
ENTRYPOINT ["/bin/sh", "-c", "exec rotel-agent start"]
