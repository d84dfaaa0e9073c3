// The shape of a model, and what follows from it: bytes of KV a token, active parameters, the cost of attention.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace cenote::simulation {

/// A decoder in the names of a `config.json`. 0 where a member is not there.
struct model_spec {
  std::uint64_t layers = 0;
  std::uint64_t window_layers = 0;  ///< of these: layers that see a window only
  std::uint64_t window = 0;         ///< tokens that such a layer sees
  std::uint64_t heads = 0;
  std::uint64_t kv_heads = 0;
  std::uint64_t head_dim = 0;
  std::uint64_t kv_lora_rank = 0;  ///< above 0: multi-head latent attention (DeepSeek-V2, arXiv:2405.04434)
  std::uint64_t rope_dim = 0;      ///< of MLA: qk_rope_head_dim
  std::uint64_t nope_dim = 0;      ///< of MLA: qk_nope_head_dim
  std::uint64_t value_dim = 0;     ///< of MLA: v_head_dim
  std::uint64_t q_lora_rank = 0;
  std::uint64_t hidden = 0;
  std::uint64_t intermediate = 0;  ///< of a dense layer
  std::uint64_t vocabulary = 0;
  std::uint64_t experts = 0;         ///< of a layer that has some
  std::uint64_t active_experts = 0;  ///< that a token passes
  std::uint64_t shared_intermediate = 0;
  std::uint64_t expert_intermediate = 0;
  std::uint64_t dense_layers = 0;  ///< without experts, in a model that has some
  std::uint64_t value_bytes = 2;   ///< of a number of the KV cache
  bool tied_embeddings = false;

  /// Bytes that each token adds to the KV cache, over all ranks of `ranks` that share the heads: a rank has at least
  /// one head, and MLA's latent whole. Layers with a window do not count. Refused (invalid_argument): ranks that divide
  /// neither the KV heads nor are a multiple of them.
  [[nodiscard]] result<std::uint64_t> bytes_per_token(std::uint64_t ranks = 1) const;
  /// The most bytes that the layers with a window hold, however long the context is; the same ranks.
  [[nodiscard]] result<std::uint64_t> window_bytes(std::uint64_t ranks = 1) const;
  /// Weights that a token passes, embeddings included; 0 where the shape is not given.
  [[nodiscard]] double active_parameters() const;
  /// Weights that a step for `sequences` tokens at once reads: active_parameters(), and of each layer with experts
  /// those that other tokens pass, which are E · (1 − (1 − k/E)^sequences) of E where each token passes k drawn evenly;
  /// 0 where the shape is not given.
  [[nodiscard]] double step_parameters(double sequences) const;
  /// FLOP of attention for a token, for each token of its context: 4 · layers · heads · head_dim. MLA: the mean of the
  /// dimensions of keys and values. Layers with a window have a bound and do not count.
  [[nodiscard]] double attention_flop() const;
};

/// Reads a `config.json`, or the `text_config` in it. Errors: malformed, naming the member that is missing or wrong.
/// Whatever the text is, nothing throws and no product wraps.
[[nodiscard]] result<model_spec> parse_model(std::string_view config);

/// Bytes of a number by its name in configurations ("bfloat16", "fp8_e4m3"). Errors: invalid_argument.
[[nodiscard]] result<std::uint64_t> value_bytes_named(std::string_view name);

/// A row of the table of models.
struct model_preset {
  std::string_view name;
  model_spec spec;
};
[[nodiscard]] std::span<const model_preset> model_presets() noexcept;
/// Errors: invalid_argument, with all names.
[[nodiscard]] result<model_spec> find_model(std::string_view name);

/// A row of the table of GPUs: figures of the makers' data sheets, without sparsity.
struct gpu_preset {
  std::string_view name;
  double bf16_flops = 0;    ///< a second
  double memory_bytes = 0;  ///< 10^9 for each GB of the data sheet
  double bandwidth = 0;     ///< bytes a second
  double mfu = 0;           ///< share of the peak that a prefill is taken to reach: a guess, to be measured
};
[[nodiscard]] std::span<const gpu_preset> gpu_presets() noexcept;
/// Errors: invalid_argument, with all names.
[[nodiscard]] result<gpu_preset> find_gpu(std::string_view name);

}  // namespace cenote::simulation
