FROM julia:1.10.5
ENV JULIA_DEPOT_PATH=/opt/julia
COPY Project.toml Manifest.toml /opt/project/
RUN julia --project=/opt/project -e 'using Pkg; Pkg.instantiate(); Pkg.precompile()'
CMD ["julia", "--project=/opt/project"]
