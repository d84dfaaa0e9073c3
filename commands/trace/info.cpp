#include "commands/trace/info.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_set>

#include "commands/common.hpp"
#include "commands/replay/ctrace_file.hpp"
#include "commands/replay/input.hpp"
#include "commands/replay/line.hpp"
#include "core/count_text.hpp"
#include "simulation/formats/members.hpp"

namespace cenote::traces {

namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using simulation::chain_access;
using simulation::trace;

double bytes_per_reference(const summary& all) {
  return all.references == 0 ? 0 : static_cast<double>(all.bytes) / static_cast<double>(all.references);
}

ordered_json json_of(const summary& all) {
  return {{"format", all.format},
          {"block_tokens", all.block_tokens},
          {"requests", all.requests},
          {"writes", all.writes},
          {"instances", all.instances},
          {"sessions", all.sessions},
          {"distinct", all.distinct},
          {"references", all.references},
          {"tokens", all.tokens},
          {"first_ms", all.first_ms},
          {"last_ms", all.last_ms},
          {"longest", all.longest},
          {"bytes", all.bytes},
          {"bytes_per_reference", bytes_per_reference(all)},
          {"lines", all.lines},
          {"left_out", all.left_out},
          {"full_blocks", all.full_blocks},
          {"anonymised", all.anonymised}};
}

std::string text_of(const summary& all) {
  std::string text =
      fmt::format("{}{}: {}", all.format, all.anonymised ? ", anonymised" : "", count_text(all.requests, "request"));
  if (all.writes > 0) text += " and " + count_text(all.writes, "write");
  text += fmt::format(" of {} in {}, {} tokens\n", count_text(all.instances, "instance"),
                      count_text(all.sessions, "session"), all.tokens);
  text += fmt::format("{} references to {} blocks of {} tokens{}; the longest request has {} blocks\n", all.references,
                      all.distinct, all.block_tokens, all.full_blocks ? ", full ones only" : "", all.longest);
  text += fmt::format("from {:.1f} s to {:.1f} s\n", static_cast<double>(all.first_ms) / 1e3,
                      static_cast<double>(all.last_ms) / 1e3);
  text += fmt::format("{} bytes, {:.2f} bytes a reference; {} of {} lines left out\n", all.bytes,
                      bytes_per_reference(all), all.left_out, all.lines);
  return text;
}

// ------------------------------------------------------------------------------------------- vLLM's events

bool is_event_name(const json& name) {
  constexpr std::array<std::string_view, 3> names{"BlockStored", "BlockRemoved", "AllBlocksCleared"};
  return name.is_string() && std::ranges::find(names, name.get_ref<const std::string&>()) != names.end();
}

/// Whether it has the tokens of a prompt, as requests with hashes of blocks have, and events have not.
bool has_prompt(const json& value) {
  return std::ranges::any_of(formats::token_names, [&](std::string_view name) { return value.contains(name); });
}

bool is_event(const json& value) {
  if (value.is_array()) return !value.empty() && is_event_name(value.front());
  if (!value.is_object()) return false;
  return is_event_name(member(value, "type")) || (value.contains("block_hashes") && !has_prompt(value));
}

/// An event, or a batch of them: an object with `events`, or a list of a time and events.
bool has_events(const json& line) {
  if (is_event(line)) return true;
  const bool is_list = line.is_array() && line.size() > 1;
  const json& events = is_list ? line[1] : member(line, "events");
  return events.is_array() && !events.empty() && is_event(events.front());
}

/// Whether the first line is one of events; files that cannot be read have none.
bool holds_events(const std::string& path) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path, unknown) || replay::is_ctrace_file(path)) return false;
  const auto source = open_packed_file(path);
  if (!source) return false;
  line_reader lines(**source);
  const auto first = lines.next();
  if (!first || !*first) return false;
  return has_events(json::parse((*first)->begin(), (*first)->end(), nullptr, false));
}

}  // namespace

summary summary_of(const read_trace& read, std::uint64_t bytes) {
  const trace& requests = read.requests;
  summary all{.format = read.format,
              .block_tokens = requests.block_tokens(),
              .distinct = requests.distinct(),
              .references = requests.stream().size(),
              .tokens = requests.tokens(),
              .bytes = bytes,
              .lines = read.lines,
              .left_out = read.left_out,
              .full_blocks = read.full_blocks,
              .anonymised = read.anonymised};
  std::unordered_set<std::uint32_t> instances;
  std::unordered_set<std::uint32_t> sessions;
  for (const trace::entry& each : requests.requests()) {
    ++(each.access == chain_access::write ? all.writes : all.requests);
    all.longest = std::max<std::uint64_t>(all.longest, each.count);
    instances.insert(each.instance);
    sessions.insert(each.session);
  }
  all.instances = instances.size();
  all.sessions = sessions.size();
  if (!requests.requests().empty()) {
    all.first_ms = requests.requests().front().time_ms;
    all.last_ms = requests.requests().back().time_ms;
  }
  return all;
}

void print(const summary& all, bool as_json) {
  fmt::print("{}", as_json ? json_of(all).dump() + "\n" : text_of(all));
}

exit_code run_info(const info_options& options) {
  const std::string& path = options.trace.path;
  if (holds_events(path)) {
    return failed_with({error_code::malformed,
                        path + " holds vLLM's KVCacheEvents: stores and removals only show what was cached, not what "
                               "was asked, so no other capacity can be judged by them"});
  }
  optimize::trace_options all = options.trace;
  all.full_blocks = false;
  const auto read = all.read();
  if (!read) return failed_with(read.error());
  std::error_code unknown;
  const std::uintmax_t bytes = std::filesystem::file_size(path, unknown);
  print(summary_of(*read, unknown ? 0 : bytes), options.as_json);
  return exit_code::orderly;
}

}  // namespace cenote::traces
