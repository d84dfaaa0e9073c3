#include "simulation/optimize/model_spec.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

namespace cenote::simulation {

namespace {

using simdjson::dom::element;
using simdjson::dom::object;

/// No member may be larger. The largest product is of five of them and a small number: doubles have it, and what is
/// counted in whole numbers is a product of three.
constexpr std::uint64_t largest_member = std::uint64_t{1} << 20;

std::unexpected<error> wrong(std::string message) {
  return fail(error_code::malformed, std::move(message));
}

double real(std::uint64_t number) {
  return static_cast<double>(number);
}

/// Members of one object. The first wrong one is kept as the error of all.
class config_members {
 public:
  explicit config_members(object members) : members_(members) {}

  /// The first of `names` that is there and not null; else 0.
  std::uint64_t number(std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) {
      element value;
      if (members_.at_key(name).get(value) != simdjson::SUCCESS || value.is_null()) continue;
      std::uint64_t number = 0;
      if (value.get(number) == simdjson::SUCCESS && number <= largest_member) return number;
      keep(fmt::format("{}: a whole number from 0 to {} was expected", name, largest_member));
      return 0;
    }
    return 0;
  }
  std::uint64_t needed(std::string_view name, std::string_view second_name = {}) {
    const std::uint64_t number = second_name.empty() ? this->number({name}) : this->number({name, second_name});
    if (number == 0) keep(fmt::format("{} is missing, or 0", name));
    return number;
  }
  [[nodiscard]] std::optional<std::string_view> text(std::string_view name) const {
    std::string_view value;
    if (members_.at_key(name).get(value) != simdjson::SUCCESS) return std::nullopt;
    return value;
  }
  [[nodiscard]] std::optional<bool> flag(std::string_view name) const {
    bool value = false;
    if (members_.at_key(name).get(value) != simdjson::SUCCESS) return std::nullopt;
    return value;
  }
  [[nodiscard]] const object& members() const noexcept { return members_; }

  void keep(std::string message) {
    if (fault_.empty()) fault_ = std::move(message);
  }
  [[nodiscard]] const std::string& fault() const noexcept { return fault_; }

 private:
  object members_;
  std::string fault_;
};

void read_value_bytes(config_members& config, model_spec& spec) {
  std::string_view name = "bfloat16";
  for (const std::string_view member : {"torch_dtype", "dtype"}) {
    if (const auto text = config.text(member)) name = *text;
  }
  if (const auto text = config.text("kv_cache_dtype"); text && *text != "auto") name = *text;
  if (const auto bytes = value_bytes_named(name)) {
    spec.value_bytes = *bytes;
  } else {
    config.keep(bytes.error().message());
  }
}

void read_windows(config_members& config, model_spec& spec) {
  spec.window = config.number({"sliding_window"});
  element types;
  if (config.members().at_key("layer_types").get(types) != simdjson::SUCCESS || types.is_null()) {
    // A window without a list is that of all layers, unless it is switched off.
    if (spec.window > 0 && config.flag("use_sliding_window").value_or(true)) spec.window_layers = spec.layers;
    return;
  }
  simdjson::dom::array list;
  if (types.get(list) != simdjson::SUCCESS) return config.keep("layer_types: a list was expected");
  std::uint64_t count = 0;
  for (const element each : list) {
    std::string_view type;
    if (each.get(type) != simdjson::SUCCESS) return config.keep("layer_types: a list of names was expected");
    ++count;
    if (type == "sliding_attention" || type == "chunked_attention") {
      ++spec.window_layers;
    } else if (type != "full_attention") {
      return config.keep(
          fmt::format("layer_types: `{}` is none of full_attention, sliding_attention and "
                      "chunked_attention; give --bytes-per-token",
                      type.substr(0, 40)));
    }
  }
  if (count != spec.layers) {
    config.keep(fmt::format("layer_types has {} names, num_hidden_layers is {}", count, spec.layers));
  }
  if (spec.window == 0) spec.window = config.number({"attention_chunk_size"});
  if (spec.window_layers > 0 && spec.window == 0) config.keep("sliding_window is missing, or 0");
}

void read_attention(config_members& config, model_spec& spec) {
  spec.heads = config.needed("num_attention_heads", "n_head");
  spec.kv_lora_rank = config.number({"kv_lora_rank"});
  if (spec.kv_lora_rank > 0) {
    spec.kv_heads = 1;
    spec.rope_dim = config.needed("qk_rope_head_dim");
    spec.nope_dim = config.number({"qk_nope_head_dim"});
    spec.value_dim = config.number({"v_head_dim"});
    spec.q_lora_rank = config.number({"q_lora_rank"});
    return;
  }
  spec.kv_heads = config.number({"num_key_value_heads"});
  if (spec.kv_heads == 0) spec.kv_heads = spec.heads;
  spec.head_dim = config.number({"head_dim"});
  if (spec.head_dim > 0 || spec.heads == 0) return;
  if (spec.hidden == 0) return config.keep("head_dim is missing, and hidden_size, from which it would follow");
  spec.head_dim = spec.hidden / spec.heads;
  if (spec.hidden % spec.heads != 0) {
    config.keep(fmt::format("head_dim is missing, and num_attention_heads {} does not divide hidden_size {}",
                            spec.heads, spec.hidden));
  }
}

void read_weights(config_members& config, model_spec& spec) {
  spec.intermediate = config.number({"intermediate_size"});
  spec.vocabulary = config.number({"vocab_size"});
  spec.tied_embeddings = config.flag("tie_word_embeddings").value_or(false);
  spec.experts = config.number({"n_routed_experts", "num_experts", "num_local_experts"});
  if (spec.experts == 0) return;
  spec.active_experts = config.number({"num_experts_per_tok"});
  spec.expert_intermediate = config.number({"moe_intermediate_size", "intermediate_size"});
  spec.shared_intermediate = config.number({"shared_expert_intermediate_size"});
  if (spec.shared_intermediate == 0) {
    spec.shared_intermediate = config.number({"n_shared_experts"}) * spec.expert_intermediate;
  }
  spec.dense_layers = std::min(config.number({"first_k_dense_replace"}), spec.layers);
}

result<model_spec> read_model(const object& members) {
  config_members config(members);
  model_spec spec;
  spec.hidden = config.number({"hidden_size", "n_embd"});
  spec.layers = config.needed("num_hidden_layers", "n_layer");
  read_attention(config, spec);
  read_windows(config, spec);
  read_value_bytes(config, spec);
  read_weights(config, spec);
  if (!config.fault().empty()) return wrong(config.fault());
  return spec;
}

// ---------------------------------------------------------------------------------------------- the tables

constexpr model_spec dense(std::uint64_t layers, std::uint64_t heads, std::uint64_t kv_heads, std::uint64_t hidden,
                           std::uint64_t intermediate, std::uint64_t vocabulary) {
  model_spec spec;
  spec.layers = layers;
  spec.heads = heads;
  spec.kv_heads = kv_heads;
  spec.head_dim = 128;
  spec.hidden = hidden;
  spec.intermediate = intermediate;
  spec.vocabulary = vocabulary;
  return spec;
}

constexpr model_spec mixture(model_spec spec, std::uint64_t experts, std::uint64_t active_experts) {
  spec.experts = experts;
  spec.active_experts = active_experts;
  spec.expert_intermediate = spec.intermediate;
  return spec;
}

constexpr model_spec deepseek_v3() {
  model_spec spec = dense(61, 128, 1, 7168, 18432, 129280);
  spec.head_dim = 0;
  spec.kv_lora_rank = 512;
  spec.rope_dim = 64;
  spec.nope_dim = 128;
  spec.value_dim = 128;
  spec.q_lora_rank = 1536;
  spec.experts = 256;
  spec.active_experts = 8;
  spec.expert_intermediate = 2048;
  spec.shared_intermediate = 2048;
  spec.dense_layers = 3;
  return spec;
}

// Of the config.json that each model is published with.
constexpr std::array models{
    model_preset{"deepseek-v3", deepseek_v3()},
    model_preset{"llama-3-8b", dense(32, 32, 8, 4096, 14336, 128256)},
    model_preset{"llama-3-70b", dense(80, 64, 8, 8192, 28672, 128256)},
    model_preset{"llama-3.1-405b", dense(126, 128, 8, 16384, 53248, 128256)},
    model_preset{"qwen3-8b", dense(36, 32, 8, 4096, 12288, 151936)},
    model_preset{"qwen3-32b", dense(64, 64, 8, 5120, 25600, 151936)},
    model_preset{"qwen3-30b-a3b", mixture(dense(48, 32, 4, 2048, 768, 151936), 128, 8)},
    model_preset{"qwen3-235b", mixture(dense(94, 64, 4, 4096, 1536, 151936), 128, 8)},
    model_preset{"qwen3-coder-480b", mixture(dense(62, 96, 8, 6144, 2560, 151936), 160, 8)},
};

constexpr double tera = 1e12;
constexpr double giga = 1e9;
constexpr double usual_mfu = 0.5;

// Dense BF16, SXM or OAM boards where there are several; B200 as in an HGX of eight.
constexpr std::array gpus{
    gpu_preset{"a100", 312 * tera, 80 * giga, 2039 * giga, usual_mfu},
    gpu_preset{"h20", 148 * tera, 96 * giga, 4000 * giga, usual_mfu},
    gpu_preset{"h100", 989 * tera, 80 * giga, 3350 * giga, usual_mfu},
    gpu_preset{"h200", 989 * tera, 141 * giga, 4800 * giga, usual_mfu},
    gpu_preset{"h800", 989 * tera, 80 * giga, 3350 * giga, usual_mfu},
    gpu_preset{"b200", 2250 * tera, 180 * giga, 8000 * giga, usual_mfu},
    gpu_preset{"l40s", 362 * tera, 48 * giga, 864 * giga, usual_mfu},
    gpu_preset{"mi300x", 1307 * tera, 192 * giga, 5300 * giga, usual_mfu},
};

template <class Rows>
auto row_named(const Rows& rows, std::string_view name, std::string_view noun) -> result<typename Rows::value_type> {
  const auto place = std::ranges::find(rows, name, &Rows::value_type::name);
  if (place != rows.end()) return *place;
  std::string names;
  for (const auto& each : rows) names.append(names.empty() ? "" : ", ").append(each.name);
  return fail(error_code::invalid_argument, fmt::format("`{}` is no {}; known: {}", name, noun, names));
}

/// Copies of the KV heads of a layer over all ranks, in heads.
result<std::uint64_t> heads_over(const model_spec& spec, std::uint64_t ranks) {
  if (ranks > 0 && ranks <= largest_member && spec.kv_heads > 0) {
    if (spec.kv_heads % ranks == 0) return spec.kv_heads;
    if (ranks % spec.kv_heads == 0) return ranks;
  }
  return fail(error_code::invalid_argument,
              fmt::format("{} KV heads do not fit a tensor parallelism of {}: one has to divide the other",
                          spec.kv_heads, ranks));
}

/// Bytes a token of `layers` layers.
result<std::uint64_t> bytes_over(const model_spec& spec, std::uint64_t layers, std::uint64_t ranks) {
  const auto heads = heads_over(spec, ranks);
  if (!heads) return heads;
  const std::uint64_t width = spec.kv_lora_rank > 0 ? spec.kv_lora_rank + spec.rope_dim : 2 * spec.head_dim;
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(layers * *heads, width * spec.value_bytes, &bytes)) {
    return fail(error_code::malformed, "a token of this model would take over 2^64 bytes");
  }
  return bytes;
}

double attention_weights(const model_spec& spec) {
  if (spec.kv_lora_rank == 0) {
    return 2 * real(spec.hidden) * real(spec.head_dim) * real(spec.heads + spec.kv_heads);
  }
  const double query_width = real(spec.heads) * real(spec.nope_dim + spec.rope_dim);
  const double queries = spec.q_lora_rank > 0 ? real(spec.q_lora_rank) * (real(spec.hidden) + query_width)
                                              : real(spec.hidden) * query_width;
  const double keys = real(spec.hidden) * real(spec.kv_lora_rank + spec.rope_dim) +
                      real(spec.kv_lora_rank) * real(spec.heads) * real(spec.nope_dim + spec.value_dim);
  return queries + keys + real(spec.heads) * real(spec.value_dim) * real(spec.hidden);
}

}  // namespace

result<std::uint64_t> model_spec::bytes_per_token(std::uint64_t ranks) const {
  return bytes_over(*this, layers - window_layers, ranks);
}

result<std::uint64_t> model_spec::window_bytes(std::uint64_t ranks) const {
  auto bytes = bytes_over(*this, window_layers, ranks);
  if (bytes && __builtin_mul_overflow(*bytes, window, &*bytes)) {
    return fail(error_code::malformed, "the windows of this model would take over 2^64 bytes");
  }
  return bytes;
}

double model_spec::active_parameters() const {
  const bool has_experts = experts > 0;
  const std::uint64_t needed_width = has_experts ? expert_intermediate : intermediate;
  if (hidden == 0 || vocabulary == 0 || needed_width == 0 || (has_experts && active_experts == 0)) return 0;
  if (kv_lora_rank > 0 && (nope_dim == 0 || value_dim == 0)) return 0;
  if (dense_layers > 0 && intermediate == 0) return 0;
  const double of_width = 3 * real(hidden);  // gate, up and down
  const double dense_weights = of_width * real(intermediate);
  const double expert_weights =
      of_width * (real(active_experts) * real(expert_intermediate) + real(shared_intermediate)) +
      real(hidden) * real(experts);
  const std::uint64_t plain_layers = has_experts ? dense_layers : layers;
  const double embeddings = real(vocabulary) * real(hidden) * (tied_embeddings ? 1 : 2);
  return real(layers) * attention_weights(*this) + real(plain_layers) * dense_weights +
         real(layers - plain_layers) * expert_weights + embeddings;
}

double model_spec::step_parameters(double sequences) const {
  const double active = active_parameters();
  if (active <= 0 || experts == 0 || active_experts >= experts) return active;
  const double idle_share = 1 - real(active_experts) / real(experts);
  const double more_experts =
      std::max(0.0, real(experts) * (1 - std::pow(idle_share, sequences)) - real(active_experts));
  return active + real(layers - dense_layers) * 3 * real(hidden) * real(expert_intermediate) * more_experts;
}

double model_spec::attention_flop() const {
  const double width = kv_lora_rank > 0 ? real(nope_dim + rope_dim + value_dim) / 2 : real(head_dim);
  if (kv_lora_rank > 0 && (nope_dim == 0 || value_dim == 0)) return 0;
  return 4 * real(layers - window_layers) * real(heads) * width;
}

result<model_spec> parse_model(std::string_view config) {
  simdjson::dom::parser parser;
  element document;
  if (const auto bad = parser.parse(config.data(), config.size()).get(document); bad != simdjson::SUCCESS) {
    return wrong(fmt::format("this is no JSON: {}", simdjson::error_message(bad)));
  }
  object members;
  if (document.get(members) != simdjson::SUCCESS) return wrong("an object was expected, as in a config.json");
  if (object nested; members.at_key("text_config").get(nested) == simdjson::SUCCESS) members = nested;
  return read_model(members);
}

result<std::uint64_t> value_bytes_named(std::string_view name) {
  struct row {
    std::string_view beginning;
    std::uint64_t bytes;
  };
  constexpr std::array rows{row{"bfloat16", 2}, row{"bf16", 2},    row{"float16", 2}, row{"half", 2},
                            row{"fp16", 2},     row{"float32", 4}, row{"fp32", 4},    row{"float8", 1},
                            row{"fp8", 1},      row{"int8", 1},    row{"float64", 8}, row{"float", 4}};
  if (name.starts_with("torch.")) name.remove_prefix(6);
  const auto place = std::ranges::find_if(rows, [&](const row& named_type) {
    const bool has_variants = named_type.bytes == 1;  // fp8_e4m3, float8_e5m2
    return has_variants ? name.starts_with(named_type.beginning) : name == named_type.beginning;
  });
  if (place != rows.end()) return place->bytes;
  return fail(error_code::invalid_argument,
              fmt::format("`{}` is no type of KV that is known; right are bfloat16, float16, float32, fp8, int8",
                          name.substr(0, 40)));
}

std::span<const model_preset> model_presets() noexcept {
  return models;
}

result<model_spec> find_model(std::string_view name) {
  const auto row = row_named(models, name, "preset of a model");
  if (!row) return std::unexpected(row.error());
  return row->spec;
}

std::span<const gpu_preset> gpu_presets() noexcept {
  return gpus;
}

result<gpu_preset> find_gpu(std::string_view name) {
  return row_named(gpus, name, "preset of a GPU");
}

}  // namespace cenote::simulation
