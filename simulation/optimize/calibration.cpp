#include "simulation/optimize/calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "simulation/optimize/queue.hpp"

namespace cenote::simulation {

namespace {

constexpr std::size_t unknowns = 3;  // the constant, seconds a token, seconds a token and token of context
constexpr std::size_t token_unknown = 1;
constexpr long double singular = 1e-12L;

using unknown_values = std::array<long double, unknowns>;

/// Of one row, as shares of what was measured: they shall sum up to 1.
unknown_values terms_of(const measured_prefill& row, std::optional<double> pivot) {
  const auto n = static_cast<long double>(row.input);
  const auto p = static_cast<long double>(row.cached);
  const long double computed = n - p;
  const long double context = (n * n) - (p * p);
  const auto ttft = static_cast<long double>(row.ttft);
  if (!pivot) return {1 / ttft, computed / ttft, context / ttft};
  return {1 / ttft, (computed + context / (2 * static_cast<long double>(*pivot))) / ttft, 0};
}

/// The normal equations of all rows, with columns of length 1.
class normal_equations {
 public:
  normal_equations(std::span<const measured_prefill> rows, std::optional<double> pivot) {
    for (const auto& each : rows) {
      const unknown_values terms = terms_of(each, pivot);
      for (std::size_t i = 0; i < unknowns; ++i) {
        right_[i] += terms[i];
        for (std::size_t j = 0; j < unknowns; ++j) matrix_[i][j] += terms[i] * terms[j];
      }
    }
    for (std::size_t i = 0; i < unknowns; ++i) scale_[i] = std::sqrt(matrix_[i][i]);
  }

  /// The best values of the unknowns in `set` (a bit each), the others 0; nothing where rows cannot separate them.
  [[nodiscard]] std::optional<unknown_values> solve(unsigned set) const {
    std::vector<std::size_t> used;
    for (std::size_t i = 0; i < unknowns; ++i) {
      if ((set >> i & 1) == 0) continue;
      if (!(scale_[i] > 0)) return std::nullopt;
      used.push_back(i);
    }
    // Cholesky's factor, and the right side carried through it.
    std::array<unknown_values, unknowns> factor{};
    unknown_values carried{};
    for (std::size_t i = 0; i < used.size(); ++i) {
      for (std::size_t j = 0; j <= i; ++j) {
        long double sum = matrix_[used[i]][used[j]] / (scale_[used[i]] * scale_[used[j]]);
        for (std::size_t k = 0; k < j; ++k) sum -= factor[i][k] * factor[j][k];
        if (i == j && !(sum > singular)) return std::nullopt;
        factor[i][j] = i == j ? std::sqrt(sum) : sum / factor[j][j];
      }
      long double sum = right_[used[i]] / scale_[used[i]];
      for (std::size_t k = 0; k < i; ++k) sum -= factor[i][k] * carried[k];
      carried[i] = sum / factor[i][i];
    }
    unknown_values values{};
    for (std::size_t i = used.size(); i-- > 0;) {
      long double sum = carried[i];
      for (std::size_t k = i + 1; k < used.size(); ++k) sum -= factor[k][i] * values[used[k]] * scale_[used[k]];
      values[used[i]] = sum / factor[i][i] / scale_[used[i]];
    }
    return values;
  }

 private:
  std::array<unknown_values, unknowns> matrix_{};
  unknown_values right_{};
  unknown_values scale_{};
};

long double squares_of(std::span<const measured_prefill> rows, std::optional<double> pivot,
                       const unknown_values& values) {
  long double sum = 0;
  for (const auto& each : rows) {
    const unknown_values terms = terms_of(each, pivot);
    const long double off = std::inner_product(terms.begin(), terms.end(), values.begin(), -1.0L);
    sum += off * off;
  }
  return sum;
}

std::optional<unknown_values> best_values(std::span<const measured_prefill> rows, std::optional<double> pivot) {
  const normal_equations equations(rows, pivot);
  std::optional<unknown_values> best;
  long double least = 0;
  // Sets with seconds a token, the smallest ones first: a larger one has to be better.
  for (const unsigned set : {0b010U, 0b011U, 0b110U, 0b111U}) {
    const auto values = equations.solve(set);
    const auto is_negative = [](long double value) { return value < 0; };
    if (!values || std::ranges::any_of(*values, is_negative) || !((*values)[token_unknown] > 0)) continue;
    const long double squares = squares_of(rows, pivot, *values);
    if (!best || squares < least) {
      best = values;
      least = squares;
    }
  }
  return best;
}

}  // namespace

result<calibration> calibrate(std::span<const measured_prefill> rows, std::optional<double> pivot) {
  if (rows.size() < fewest_rows) {
    return fail(
        error_code::malformed,
        fmt::format("{} useful rows are too few: {} figures are looked for, so {} rows of different lengths are "
                    "the least",
                    rows.size(), unknowns, fewest_rows));
  }
  const auto values = best_values(rows, pivot);
  if (!values) {
    return fail(error_code::malformed,
                "the times do not grow with the tokens that are computed: no rate follows from these rows");
  }
  const auto [constant, token_time, context_time] = *values;
  calibration fit;
  fit.model.constant = static_cast<double>(constant);
  fit.model.rate = static_cast<double>(1 / token_time);
  if (pivot) {
    fit.model.pivot = *pivot;
  } else if (context_time > 0) {
    fit.model.pivot = static_cast<double>(token_time / (2 * context_time));
  }
  std::vector<double> errors;
  errors.reserve(rows.size());
  for (const auto& each : rows) {
    errors.push_back(std::abs(fit.model.seconds(each.cached, each.input) - each.ttft) / each.ttft);
  }
  fit.worst = static_cast<std::size_t>(std::ranges::max_element(errors) - errors.begin());
  std::ranges::sort(errors);
  fit.median_error = nearest_rank(errors, 50);
  fit.p90_error = nearest_rank(errors, 90);
  return fit;
}

}  // namespace cenote::simulation
