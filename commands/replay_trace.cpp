#include "commands/replay_trace.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

namespace cenote {

namespace {

using nlohmann::json;

constexpr std::size_t most_complaints = 20;
constexpr double largest_time_ms = 4e11;  // tenths of a second in 32 bits: over twelve years

struct trace_line {
  std::uint64_t time_ms = 0;
  std::uint64_t tokens = 0;
  std::vector<std::uint64_t> ids;
};

/// What is wrong with a line; empty when nothing is.
std::string parse_line(const std::string& text, trace_line& line) {
  const json object = json::parse(text, nullptr, false);
  if (object.is_discarded()) return "this is no JSON";
  if (!object.is_object()) return fmt::format("a JSON object was expected, not {}", object.type_name());
  for (const char* const name : {"timestamp", "input_length", "hash_ids"}) {
    if (!object.contains(name)) return fmt::format("`{}` is missing", name);
  }
  const json& time = object["timestamp"];
  if (!time.is_number() || !(time.get<double>() >= 0) || time.get<double>() > largest_time_ms) {
    return "`timestamp` is not a time in milliseconds";
  }
  if (!object["input_length"].is_number_unsigned()) return "`input_length` is not a number of tokens";
  if (!object["hash_ids"].is_array()) return "`hash_ids` is not a list";
  line.time_ms = static_cast<std::uint64_t>(time.get<double>());
  line.tokens = object["input_length"].get<std::uint64_t>();
  line.ids.clear();
  for (const json& id : object["hash_ids"]) {
    if (!id.is_number_unsigned()) return fmt::format("`hash_ids` holds {}, not a block's id", id.dump());
    line.ids.push_back(id.get<std::uint64_t>());
  }
  return {};
}

}  // namespace

result<read_trace> read_trace_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return fail(error_code::system, fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  read_trace read;
  trace_line line;
  std::string text;
  for (std::uint64_t number = 1; std::getline(file, text); ++number) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string wrong = parse_line(text, line);
    if (wrong.empty()) {
      read.requests.add(line.time_ms, line.tokens, line.ids);
      continue;
    }
    ++read.bad_lines;
    if (read.complaints.size() < most_complaints) {
      read.complaints.push_back(fmt::format("{}:{}: {}", path, number, wrong));
    }
  }
  if (file.bad()) return fail(error_code::system, fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  if (read.requests.requests().empty()) {
    const std::string first = read.complaints.empty() ? "it is empty" : "first of all, " + read.complaints.front();
    return fail(error_code::malformed, fmt::format("{} holds no request; {}", path, first));
  }
  return read;
}

}  // namespace cenote
