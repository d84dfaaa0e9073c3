#include "commands/optimize/model.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "commands/common.hpp"
#include "commands/optimize/engine_page.hpp"
#include "commands/optimize/figures_text.hpp"
#include "commands/replay/options.hpp"
#include "commands/table.hpp"
#include "core/units.hpp"

namespace cenote::optimize {

namespace {

using nlohmann::ordered_json;

constexpr std::uint64_t longest_input = 1'000'000'000;
constexpr std::size_t most_times = 1000;

struct prefill_case {
  std::uint64_t cached = 0;
  std::uint64_t input = 0;
};

bool read_tokens(std::string_view text, std::uint64_t& tokens) {
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), tokens);
  return bad == std::errc() && end == text.data() + text.size() && tokens <= longest_input;
}

/// A step of decoding: `sequences` at once, each with so many tokens of context.
struct decode_case {
  std::uint64_t sequences = 0;
  std::uint64_t context = 0;
};

/// "32000:64000,0:1000": pairs of numbers up to longest_input that make sense together. A refusal is `complaint`, in
/// which {0} is the part that is none, and {1} the most parts.
template <class Pair>
result<std::vector<Pair>> parse_pairs(std::string_view text, bool (*makes_sense)(const Pair&),
                                      fmt::format_string<const std::string_view&, const std::size_t&> complaint) {
  std::vector<Pair> all;
  if (text.empty()) return all;
  for (const std::string_view part : split(text, ',')) {
    const std::size_t colon = part.find(':');
    std::uint64_t first = 0;
    std::uint64_t second = 0;
    const bool is_pair = colon != std::string_view::npos && read_tokens(part.substr(0, colon), first) &&
                         read_tokens(part.substr(colon + 1), second);
    if (!is_pair || !makes_sense(Pair{first, second}) || all.size() == most_times)
      return fail(error_code::invalid_argument, fmt::format(complaint, part, most_times));
    all.push_back(Pair{first, second});
  }
  return all;
}

result<std::vector<prefill_case>> parse_cases(std::string_view text) {
  return parse_pairs<prefill_case>(
      text, [](const prefill_case& one) { return one.cached <= one.input; },
      "--times: `{0}` is no CACHED:INPUT in tokens, the first at most the second, as in 32000:64000; at most {1} of "
      "them");
}

result<std::vector<decode_case>> parse_decode(std::string_view text) {
  return parse_pairs<decode_case>(
      text, [](const decode_case& one) { return one.sequences > 0; },
      "--decode: `{0}` is no SEQUENCES:CONTEXT, a number of sequences at once and the tokens of each, as in 32:8000; "
      "at most {1} of them");
}

struct model_answer {
  engine_figures engine;
  std::vector<tier_choice> tiers;
  std::vector<prefill_case> cases;
  std::vector<decode_case> decode;
  double weight_bytes = 2;  ///< of a number

  /// Seconds: the weights and the KV cache of all sequences are read once, and nothing else takes time.
  [[nodiscard]] double step_seconds(const decode_case& step) const {
    const auto sequences = static_cast<double>(step.sequences);
    const double weights = engine.spec ? engine.spec->step_parameters(sequences) : engine.active_parameters;
    const double cache = sequences * (static_cast<double>(step.context) * static_cast<double>(*engine.bytes_per_token) +
                                      static_cast<double>(engine.window_bytes));
    return (weights * weight_bytes + cache) / engine.memory_bandwidth;
  }
};

/// Refused: steps without what their time follows from.
result<void> add_decode(const model_options& options, model_answer& answer) {
  auto decode = parse_decode(options.decode);
  if (!decode) return std::unexpected(decode.error());
  if (decode->empty() && !options.weight_dtype.empty())
    return fail(error_code::invalid_argument, "--weight-dtype is for steps of decoding: --decode 32:8000 goes with it");
  answer.decode = std::move(*decode);
  if (answer.decode.empty()) return {};
  if (answer.engine.memory_bandwidth <= 0)
    return fail(error_code::invalid_argument, "--decode: give --gpu, whose memory decides on the time of a step");
  if (answer.engine.active_parameters <= 0)
    return fail(error_code::invalid_argument, "--decode: give --model with all its sizes, or --active-parameters");
  if (options.weight_dtype.empty()) return {};
  const auto bytes = simulation::value_bytes_named(options.weight_dtype);
  if (!bytes) return std::unexpected(bytes.error().in("--weight-dtype"));
  answer.weight_bytes = static_cast<double>(*bytes);
  return {};
}

result<model_answer> answer_to(const model_options& options) {
  if (!options.config.empty() && !options.engine.model.empty()) {
    return fail(error_code::invalid_argument, "a config.json and --model are two models: leave one of them out");
  }
  prefill_options engine = options.engine;
  if (engine.model.empty()) engine.model = options.config;
  if (engine.model.empty() && engine.bytes_per_token.empty()) {
    return fail(error_code::invalid_argument, "a model is missing: give a config.json, --model or --bytes-per-token");
  }
  model_answer answer;
  auto cases = parse_cases(options.times);
  if (!cases) return std::unexpected(cases.error());
  auto tiers = options.tiers.choices();
  if (!tiers) return std::unexpected(tiers.error());
  auto figures = engine.figures();
  if (!figures) return std::unexpected(figures.error());
  if (!cases->empty() || !tiers->empty()) {
    if (const auto prefill = figures->needed_prefill(); !prefill) return std::unexpected(prefill.error());
  }
  answer.engine = *figures;
  answer.tiers = std::move(*tiers);
  answer.cases = std::move(*cases);
  if (auto good = add_decode(options, answer); !good) return std::unexpected(good.error());
  return answer;
}

std::optional<std::uint64_t> break_even(const model_answer& answer, const tier_choice& tier) {
  return simulation::break_even_tokens(tier.link, *answer.engine.prefill,
                                       static_cast<double>(*answer.engine.bytes_per_token));
}

ordered_json json_of_model(const model_answer& answer) {
  const engine_figures& engine = answer.engine;
  ordered_json object{{"bytes_per_token", *engine.bytes_per_token},
                      {"window_bytes", engine.window_bytes},
                      {"active_parameters", number_or_null(engine.active_parameters)},
                      {"rate", number_or_null(engine.prefill ? engine.prefill->rate : 0)},
                      {"pivot", number_or_null(engine.pivot.value_or(0))},
                      {"prefill_s", ordered_json::array()},
                      {"decode_s", ordered_json::array()},
                      {"break_even_tokens", ordered_json::object()}};
  for (const prefill_case& each : answer.cases) {
    object["prefill_s"].push_back({each.cached, each.input, engine.prefill->seconds(each.cached, each.input)});
  }
  for (const decode_case& each : answer.decode)
    object["decode_s"].push_back({each.sequences, each.context, answer.step_seconds(each)});
  for (const tier_choice& each : answer.tiers) {
    const auto tokens = break_even(answer, each);
    object["break_even_tokens"][each.link.name] = tokens ? ordered_json(*tokens) : ordered_json(nullptr);
  }
  return object;
}

std::string engine_text(const engine_figures& engine) {
  std::string text;
  text += fmt::format("KV cache     {} bytes a token ({})\n", *engine.bytes_per_token,
                      approximate_bytes(*engine.bytes_per_token));
  if (engine.window_bytes > 0) {
    text += fmt::format("windows      at most {} more, however long the context is\n",
                        approximate_bytes(engine.window_bytes));
  }
  if (engine.active_parameters > 0) {
    text += fmt::format("parameters   {:.2f} billion a token\n", engine.active_parameters / 1e9);
  }
  if (engine.pivot) text += fmt::format("pivot        {}\n", pivot_text(*engine.pivot));
  if (engine.prefill) text += fmt::format("prefill      {:.1f} tokens/s without context\n", engine.prefill->rate);
  if (engine.gpu) {
    text += fmt::format("             peak {:.0f} TFLOP/s, of which {:.0f} % are taken to be reached\n",
                        engine.peak_flops / 1e12, engine.gpu->mfu * 100);
  }
  return text;
}

std::string text_of_model(const model_answer& answer) {
  std::string text = engine_text(answer.engine);
  if (!answer.cases.empty()) {
    table rows({">CACHED", ">INPUT", ">PREFILL"});
    for (const prefill_case& each : answer.cases) {
      rows.add({std::to_string(each.cached), std::to_string(each.input),
                seconds_text(answer.engine.prefill->seconds(each.cached, each.input))});
    }
    text += fmt::format("\nTIME of a prefill, by tokens\n{}", rows.text());
  }
  if (!answer.decode.empty()) {
    table rows({">SEQUENCES", ">CONTEXT", ">STEP", ">TOKENS A SECOND"});
    for (const decode_case& each : answer.decode) {
      const double seconds = answer.step_seconds(each);
      rows.add({std::to_string(each.sequences), std::to_string(each.context), seconds_text(seconds),
                fmt::format("{:.0f}", static_cast<double>(each.sequences) / seconds)});
    }
    text += fmt::format("\nDECODING at the memory's bandwidth, which no engine reaches, of contexts in tokens\n{}",
                        rows.text());
  }
  if (answer.tiers.empty()) return text;
  table rows({"TIER", ">LATENCY", ">BANDWIDTH", ">TOKENS"});
  for (const tier_choice& each : answer.tiers) {
    const auto tokens = break_even(answer, each);
    rows.add({each.link.name, seconds_text(each.link.latency), bandwidth_text(each.link.bandwidth),
              tokens ? std::to_string(*tokens) : "never"});
  }
  text += fmt::format("\nSHORTEST LOAD that is sooner than computing its tokens\n{}", rows.text());
  return text;
}

}  // namespace

void model_options::add_to(CLI::App& command) {
  command.add_option("config", config, "The model's config.json, or one of the presets of --model");
  engine.add_to(command);
  tiers.add_to(command);
  command.add_option("--times", times,
                     "Prefills to compute the time of: CACHED:INPUT in tokens, as in 0:1000,32000:64000");
  command.add_option("--decode", decode,
                     "Steps of decoding to compute the time of: SEQUENCES:CONTEXT, as in 1:8000,32:8000; needs --gpu");
  command.add_option("--weight-dtype", weight_dtype, "Type of the weights that --decode reads; without it bfloat16");
  command.add_flag("--json", as_json, "One object");
  report.add_to(command);
}

exit_code run_model(const model_options& options) {
  if (auto good = options.report.check(options.config); !good) return failed_with(good.error());
  const auto answer = answer_to(options);
  if (!answer) return failed_with(answer.error());
  const ordered_json object = json_of_model(*answer);
  const std::string text = text_of_model(*answer);
  if (options.report.is_given()) {
    std::vector<simulation::tier_link> links;
    links.reserve(answer->tiers.size());
    for (const tier_choice& each : answer->tiers) links.push_back(each.link);
    const auto* prefill = answer->engine.prefill ? &*answer->engine.prefill : nullptr;
    const std::string& model = options.config.empty() ? options.engine.model : options.config;
    if (auto good = options.report.write(model_page(model, object, text, prefill, links)); !good) {
      return failed_with(good.error());
    }
  }
  fmt::print("{}", options.as_json ? object.dump() + "\n" : text);
  return exit_code::orderly;
}

}  // namespace cenote::optimize
