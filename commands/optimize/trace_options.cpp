#include "commands/optimize/trace_options.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "commands/common.hpp"
#include "simulation/formats/format.hpp"

namespace cenote::optimize {

namespace {

/// The formats with what a block has in them.
std::string block_tokens_text() {
  std::string text;
  for (const auto& each : formats::table()) {
    text += fmt::format("{}{} for {}", text.empty() ? "" : ", ", each.block_tokens, each.name);
  }
  return text;
}

}  // namespace

void trace_options::add_to(CLI::App& command) {
  command.add_option("trace", path, "Recorded requests: a .ctrace file, or a JSON object a line")->required();
  add_reading_to(command);
}

void trace_options::add_reading_to(CLI::App& command) {
  command.add_option("--format", format, "How they are written; auto: told by the first line that is of one")
      ->check(CLI::IsMember(format_names()))
      ->capture_default_str();
  command.add_option("--block-tokens", block_tokens, "Tokens of a block; without it " + block_tokens_text())
      ->check(CLI::Range(std::uint64_t{1}, formats::most_block_tokens));
  command
      .add_option("--time-unit", unit,
                  "What times count: s, ms, us or ns; auto: what the format says, and with mooncake ms, unless it is a "
                  "time since 1970")
      ->check(CLI::IsMember(time_units()))
      ->capture_default_str();
  command.add_flag("--allow-left-out", allow_left_out,
                   "Go on when more than a tenth of a trace's lines makes no sense");
  command.add_flag("--merge-instances", merge_instances, "Let instances share blocks: equal keys are equal blocks");
}

trace_reading trace_options::reading() const {
  return {.format = format,
          .block_tokens = block_tokens,
          .unit = time_units().at(unit),
          .allow_left_out = allow_left_out,
          .full_blocks = full_blocks,
          .sharing = merge_instances ? formats::key_sharing::among_instances : formats::key_sharing::within_instance};
}

result<read_trace> trace_options::read() const {
  auto all = read_trace_file(path, reading());
  if (!all) return all;
  for (const std::string& each : all->warnings) complain({error_code::malformed, each});
  return all;
}

result<replay::streamed_trace> trace_options::stream(const replay::chain_listener& listener) const {
  auto all = stream_again(listener);
  if (!all) return all;
  for (const std::string& each : all->warnings) complain({error_code::malformed, each});
  return all;
}

result<replay::streamed_trace> trace_options::stream_again(const replay::chain_listener& listener) const {
  return replay::stream_trace_file(path, reading(), listener);
}

}  // namespace cenote::optimize
