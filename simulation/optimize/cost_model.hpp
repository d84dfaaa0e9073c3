// Seconds of a prefill, and of bringing cached tokens from the tiers in its place.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>

namespace cenote::simulation {

/// prefill(p, n) = constant + ((n − p) + (n² − p²) / (2 · pivot)) / rate: the tokens of the input less those that are
/// there, and attention, which grows with the context. Plain values: any thread may use a copy.
struct prefill_model {
  double rate = 0;                                         ///< tokens a second without context
  double pivot = std::numeric_limits<double>::infinity();  ///< context at which attention costs as much as the rest
  double constant = 0;                                     ///< seconds of each request, whatever is there

  /// Seconds for `input` tokens of which `cached`, at most all of them, are there.
  [[nodiscard]] double seconds(std::uint64_t cached, std::uint64_t input) const noexcept;

  /// 2 · active parameters / FLOP of attention for each token of context; infinity where the latter is 0.
  [[nodiscard]] static double pivot_with(double active_parameters, double attention_flop) noexcept;
  /// The rate without context of an engine that computes `measured` tokens a second on inputs of `length` tokens.
  [[nodiscard]] static double rate_with(double measured, double length, double pivot) noexcept;
};

/// The way from a tier to the engine.
struct tier_link {
  std::string name;
  double latency = 0;    ///< seconds
  double bandwidth = 0;  ///< bytes a second, above 0

  /// Seconds until `tokens` tokens are there; none take none.
  [[nodiscard]] double seconds(std::uint64_t tokens, double bytes_per_token) const noexcept;
};

/// When the load and the computing of a request go on.
enum class load_overlap : std::uint8_t {
  none,        ///< the load first, then the rest is computed
  layer_wise,  ///< at the same time, layer by layer: the longer one counts
};

/// The treatment of a load that takes longer than computing its tokens would.
enum class load_gate : std::uint8_t {
  shut,  ///< it is not made
  open,  ///< it is made
};

struct request_service {
  double seconds = 0;
  std::uint64_t loaded = 0;  ///< tokens
};

/// Serves requests on one replica of an engine. Plain values.
struct cost_model {
  prefill_model prefill;
  double bytes_per_token = 0;
  load_overlap overlap = load_overlap::none;
  load_gate gate = load_gate::shut;

  /// The service of an input of which the first tier has `tokens[0]` leading tokens, the first two `tokens[1]`, and so
  /// on (rising, at most `input`). Each tier loads what those before it lack, one tier after the other. With the gate
  /// shut, the tiers from some depth on are left out where that is sooner.
  [[nodiscard]] request_service serve(std::span<const tier_link> tiers, std::span<const std::uint64_t> tokens,
                                      std::uint64_t input) const noexcept;
};

/// The shortest whole number of tokens whose load is sooner than computing them; nothing where none up to 10^9 is.
[[nodiscard]] std::optional<std::uint64_t> break_even_tokens(const tier_link& tier, const prefill_model& prefill,
                                                             double bytes_per_token) noexcept;

}  // namespace cenote::simulation
