# The uncertainty of a regression's slope by bootstrap: each rank draws its share of the samples.

rank <- as.integer(Sys.getenv("RANK", "0"))
size <- as.integer(Sys.getenv("WORLD_SIZE", "1"))
arguments <- commandArgs(trailingOnly = TRUE)
draws <- if (length(arguments) > 0) as.integer(arguments[1]) else 2000L

set.seed(1)                                   # the same data on every rank
n <- 200
x <- runif(n)
y <- 1 + 2 * x + rnorm(n, sd = 0.5)

set.seed(1000 + rank)                         # other samples on every rank
mine <- seq(rank + 1, draws, by = size)
slopes <- vapply(mine, function(draw) {
  at <- sample(n, replace = TRUE)
  coef(lm(y[at] ~ x[at]))[[2]]
}, numeric(1))

dir.create("results", showWarnings = FALSE)
saveRDS(slopes, file.path("results", sprintf("rank%03d.rds", rank)))
cat(sprintf(
  "rank %d of %d: %d draws, slope %.3f, 95 %% interval %.3f to %.3f\n",
  rank, size, length(slopes), mean(slopes), quantile(slopes, 0.025), quantile(slopes, 0.975)
))
