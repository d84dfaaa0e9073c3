#include "commands/optimize/prefill_options.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <charconv>
#include <chrono>
#include <limits>
#include <string_view>

#include "commands/optimize/refusal.hpp"
#include "core/units.hpp"
#include "core/whole_file.hpp"

namespace cenote::optimize {

namespace {

using simulation::model_spec;
using simulation::prefill_model;

constexpr std::size_t longest_config = 4 * MiB;
constexpr std::uint64_t most_token_bytes = GiB;
constexpr std::uint64_t most_ranks = 1024;
constexpr std::uint64_t most_gpus = 1'000'000;
constexpr double smallest_number = 1e-6;  // no quotient becomes infinite
constexpr double largest_number = 1e15;

result<double> positive_number(std::string_view option, std::string_view text, double largest = largest_number) {
  double number = 0;
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (bad != std::errc() || end != text.data() + text.size() || !(number >= smallest_number) || number > largest) {
    return refuse(fmt::format("{}: `{}` is no number from {} to {}", option, text, smallest_number, largest));
  }
  return number;
}

template <class Rows>
std::string names_in(const Rows& rows) {
  std::string names;
  for (const auto& each : rows) names.append(names.empty() ? "" : ", ").append(each.name);
  return names;
}

result<model_spec> read_spec(const std::string& model) {
  auto preset = simulation::find_model(model);
  if (preset) return preset;
  const auto text = read_whole(model, longest_config);
  if (!text) return std::unexpected(text.error());
  if (!*text) {
    return refuse(fmt::format("--model: `{}` is no file, and none of the presets {}", model,
                              names_in(simulation::model_presets())));
  }
  if ((*text)->size() > longest_config) {
    return fail(error_code::malformed,
                fmt::format("{}: over {} are no config.json", model, approximate_bytes(longest_config)));
  }
  auto spec = simulation::parse_model(**text);
  if (!spec) return std::unexpected(spec.error().in(model));
  return spec;
}

result<void> add_parameters(const prefill_options& options, engine_figures& figures) {
  if (options.active_parameters.empty()) return {};
  const auto parameters = positive_number("--active-parameters", options.active_parameters);
  if (!parameters) return std::unexpected(parameters.error());
  figures.active_parameters = *parameters;
  return {};
}

/// Options that other ones leave nothing to do.
result<void> check_used(const prefill_options& options) {
  if (!options.bytes_per_token.empty() && !options.kv_dtype.empty()) {
    return refuse("--kv-dtype changes the bytes of a token, which --bytes-per-token gives: leave one of them out");
  }
  if (!options.bytes_per_token.empty() && options.ranks > 1) {
    return refuse("--tensor-parallel changes the bytes of a token, which --bytes-per-token gives: leave one out");
  }
  if (options.active_parameters.empty() || !options.gpu.empty()) return {};
  if (options.model.empty()) {
    return refuse("--active-parameters is for the rate of --gpu, or the pivot of --model: give one of them, too");
  }
  if (options.pivot.empty()) return {};
  return refuse("--active-parameters is for the pivot, which --attention-pivot gives: leave one of them out");
}

/// The figures of a model's shape, with the options that change them.
result<void> add_model(const prefill_options& options, engine_figures& figures) {
  if (options.model.empty()) {
    if (!options.kv_dtype.empty()) return refuse("--kv-dtype changes a model: give --model");
    if (options.ranks > 1) return refuse("--tensor-parallel divides a model: give --model");
    return add_parameters(options, figures);
  }
  auto spec = read_spec(options.model);
  if (!spec) return std::unexpected(spec.error());
  if (!options.kv_dtype.empty()) {
    const auto bytes = simulation::value_bytes_named(options.kv_dtype);
    if (!bytes) return std::unexpected(bytes.error().in("--kv-dtype"));
    spec->value_bytes = *bytes;
  }
  const auto bytes = spec->bytes_per_token(options.ranks);
  if (!bytes) return std::unexpected(bytes.error().in(options.model));
  const auto windows = spec->window_bytes(options.ranks);
  if (!windows) return std::unexpected(windows.error().in(options.model));
  figures.bytes_per_token = *bytes;
  figures.window_bytes = *windows;
  figures.spec = *spec;
  figures.active_parameters = spec->active_parameters();
  if (auto good = add_parameters(options, figures); !good) return good;
  if (const double attention = spec->attention_flop(); figures.active_parameters > 0 && attention > 0) {
    figures.pivot = prefill_model::pivot_with(figures.active_parameters, attention);
  }
  return {};
}

result<void> add_given(const prefill_options& options, engine_figures& figures) {
  if (!options.bytes_per_token.empty()) {
    const auto bytes = parse_bytes(options.bytes_per_token);
    if (!bytes) return std::unexpected(bytes.error().in("--bytes-per-token"));
    figures.bytes_per_token = *bytes;
  }
  if (figures.bytes_per_token && *figures.bytes_per_token > most_token_bytes) {
    return refuse(fmt::format("a token of {} bytes: at most {} are right", *figures.bytes_per_token, most_token_bytes));
  }
  if (options.pivot == "off") {
    figures.pivot = std::numeric_limits<double>::infinity();
  } else if (!options.pivot.empty()) {
    const auto pivot = positive_number("--attention-pivot", options.pivot);
    if (!pivot) return std::unexpected(pivot.error().in("right are a number of tokens and off"));
    figures.pivot = *pivot;
  } else if (options.model.empty()) {
    figures.pivot = std::numeric_limits<double>::infinity();
  }
  return {};
}

result<void> add_gpus(const prefill_options& options, engine_figures& figures) {
  if (options.gpu.empty()) {
    if (options.gpus > 0) return refuse("--gpus counts those of --gpu: give it, too");
    if (!options.mfu.empty()) return refuse("--mfu is a share of the peak of --gpu: give it, too");
    return {};
  }
  auto gpu = simulation::find_gpu(options.gpu);
  if (!gpu) return std::unexpected(gpu.error().in("--gpu"));
  if (!options.mfu.empty()) {
    const auto mfu = positive_number("--mfu", options.mfu, 1);
    if (!mfu) return std::unexpected(mfu.error());
    gpu->mfu = *mfu;
  }
  figures.gpu = *gpu;
  const auto gpus = static_cast<double>(options.gpus > 0 ? options.gpus : 1);
  figures.peak_flops = gpu->bf16_flops * gpus;
  figures.memory_bandwidth = gpu->bandwidth * gpus;
  return {};
}

/// "8000@4096": tokens a second, measured with inputs of so many tokens; 0 of them where they are not given.
result<double> measured_rate(std::string_view text, double pivot) {
  const std::size_t sign = text.find('@');
  const auto rate = positive_number("--prefill", text.substr(0, sign));
  if (!rate) return std::unexpected(rate.error().in("right is RATE@LENGTH, as in 8000@4096"));
  if (sign == std::string_view::npos) return *rate;
  const auto length = positive_number("--prefill", text.substr(sign + 1));
  if (!length) return std::unexpected(length.error().in("right is RATE@LENGTH, as in 8000@4096"));
  return prefill_model::rate_with(*rate, *length, pivot);
}

result<void> add_rate(const prefill_options& options, engine_figures& figures) {
  prefill_model prefill;
  if (!options.constant.empty()) {
    const auto time = parse_duration(options.constant);
    if (!time) return std::unexpected(time.error().in("--constant"));
    prefill.constant = std::chrono::duration<double>(*time).count();
  }
  if (options.prefill.empty() && !figures.gpu) {
    if (!options.constant.empty()) return refuse("--constant is a part of a prefill: give --prefill or --gpu, too");
    return {};
  }
  if (!options.prefill.empty() && figures.gpu) {
    return refuse("--prefill and --gpu are two rates: leave one of them out");
  }
  if (!figures.pivot) {
    return refuse(
        "no attention pivot follows from this model, as its sizes are not all there: give --attention-pivot (off for "
        "none) or --active-parameters");
  }
  prefill.pivot = *figures.pivot;
  if (figures.gpu) {
    if (figures.active_parameters <= 0) return refuse("--gpu needs --model or --active-parameters for a rate");
    prefill.rate = figures.peak_flops * figures.gpu->mfu / (2 * figures.active_parameters);
  } else {
    const auto rate = measured_rate(options.prefill, *figures.pivot);
    if (!rate) return std::unexpected(rate.error());
    prefill.rate = *rate;
  }
  figures.prefill = prefill;
  return {};
}

}  // namespace

result<prefill_model> engine_figures::needed_prefill() const {
  if (prefill) return *prefill;
  return refuse("a rate of prefill is missing: give --prefill RATE@LENGTH, or --gpu with --model");
}

result<std::uint64_t> engine_figures::needed_bytes() const {
  if (bytes_per_token) return *bytes_per_token;
  return refuse("the bytes of a token are missing: give --model or --bytes-per-token");
}

void add_model_options(CLI::App& command, prefill_options& options) {
  command.add_option("--model", options.model, "A config.json, or a preset: " + names_in(simulation::model_presets()));
  command.add_option("--active-parameters", options.active_parameters,
                     "Weights that a token passes, as in 37e9; without it they follow from the model's sizes");
  command.add_option("--gpu", options.gpu, "A preset: " + names_in(simulation::gpu_presets()));
  command.add_option("--gpus", options.gpus, "GPUs of a replica")->check(CLI::Range(std::uint64_t{1}, most_gpus));
  command.add_option("--attention-pivot", options.pivot,
                     "Context in tokens at which attention costs as much as all the rest; off: attention is free. "
                     "Without it that of the model, and off without a model");
}

void prefill_options::add_to(CLI::App& command) {
  add_model_options(command, *this);
  command.add_option("--mfu", mfu, "Share of the GPUs' peak that a prefill reaches; without it that of the preset");
  command.add_option("--prefill", prefill,
                     "Tokens a second, measured with inputs of so many tokens and nothing cached, as in 8000@4096");
  command.add_option("--constant", constant, "Time of each request whatever is cached, as in 20ms");
  command.add_option("--kv-dtype", kv_dtype, "Type of the KV cache, as bfloat16 and fp8; without it the model's");
  command
      .add_option("--tensor-parallel", ranks,
                  "Ranks that share the heads: KV heads that are fewer are stored by several")
      ->check(CLI::Range(std::uint64_t{1}, most_ranks));
  command.add_option("--bytes-per-token", bytes_per_token, "Bytes of KV a token in place of the model's");
}

result<engine_figures> prefill_options::figures() const {
  engine_figures all;
  if (auto good = check_used(*this); !good) return std::unexpected(good.error());
  for (const auto step : {&add_model, &add_given, &add_gpus, &add_rate}) {
    if (auto good = step(*this, all); !good) return std::unexpected(good.error());
  }
  return all;
}

result<simulation::cost_model> prefill_options::cost() const {
  const auto engine = figures();
  if (!engine) return std::unexpected(engine.error());
  const auto needed = engine->needed_prefill();
  if (!needed) return std::unexpected(needed.error());
  const auto bytes = engine->needed_bytes();
  if (!bytes) return std::unexpected(bytes.error());
  return simulation::cost_model{.prefill = *needed, .bytes_per_token = static_cast<double>(*bytes)};
}

}  // namespace cenote::optimize
