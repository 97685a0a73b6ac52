# Join one NetCDF file per predictor into the file that train.py reads.
#   Rscript prepare.R predictors.nc z500.nc z700.nc ta500.nc …
library(ncdf4)

arguments <- commandArgs(trailingOnly = TRUE)
if (length(arguments) < 2) stop("Rscript prepare.R OUTPUT.nc INPUT.nc ...")
output <- arguments[1]
inputs <- lapply(arguments[-1], nc_open)

# The variable with three dimensions: longitude, latitude and time, in R's order.
field <- function(file) {
  name <- Filter(function(each) file$var[[each]]$ndims == 3, names(file$var))[1]
  if (is.na(name)) stop(file$filename, " has no variable on (time, lat, lon)")
  file$var[[name]]
}
first <- field(inputs[[1]])
dimensions <- lapply(first$dim, function(each) {
  ncdim_def(each$name, each$units, each$vals, unlim = each$unlim)
})
variables <- lapply(seq_along(inputs), function(number) {
  each <- field(inputs[[number]])
  if (!identical(each$varsize, first$varsize)) stop(inputs[[number]]$filename, " has another grid or other days")
  ncvar_def(sprintf("x%02d_%s", number - 1, each$name), each$units, dimensions, prec = "float")
})
created <- nc_create(output, variables)
for (number in seq_along(inputs)) {
  ncvar_put(created, variables[[number]], ncvar_get(inputs[[number]], field(inputs[[number]])))
}
nc_close(created)
invisible(lapply(inputs, nc_close))
cat("wrote", output, "with", length(inputs), "predictors\n")
