// The commands that a Redis backend sends, and what a right server answers.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cenote::remote {

using redis_words = std::vector<std::string>;

inline std::string bulk(std::string_view text) {
  return "$" + std::to_string(text.size()) + "\r\n" + std::string(text) + "\r\n";
}

/// Takes the first command off what came; nothing: it is not whole yet.
inline std::optional<redis_words> take_redis_command(std::string& bytes) {
  std::size_t at = 0;
  const auto number = [&](char mark) -> std::optional<std::size_t> {
    const auto end = bytes.find("\r\n", at);
    if (end == std::string::npos || bytes[at] != mark) return std::nullopt;
    const auto value = static_cast<std::size_t>(std::atoll(bytes.c_str() + at + 1));
    at = end + 2;
    return value;
  };
  const auto count = number('*');
  if (!count) return std::nullopt;
  redis_words words;
  for (std::size_t i = 0; i < *count; ++i) {
    const auto size = number('$');
    if (!size || bytes.size() < at + *size + 2) return std::nullopt;
    words.push_back(bytes.substr(at, *size));
    at += *size + 2;
  }
  bytes.erase(0, at);
  return words;
}

/// The values of a server.
struct redis_values {
  std::map<std::string, std::string> values{};

  std::string answer(const redis_words& words) {
    const std::string& what = words.front();
    if (what == "PING") return "+PONG\r\n";
    if (what == "GET") return values.contains(words[1]) ? bulk(values[words[1]]) : "$-1\r\n";
    if (what == "TOUCH") return ":0\r\n";
    if (what == "EXISTS") return values.contains(words[1]) ? ":1\r\n" : ":0\r\n";
    if (what == "DEL") return values.erase(words[1]) > 0 ? ":1\r\n" : ":0\r\n";
    if (what == "SET") return values[words[1]] = words[2], "+OK\r\n";
    if (what == "SETNX") return values.emplace(words[1], words[2]).second ? ":1\r\n" : ":0\r\n";
    if (what == "EVAL" && words[2] == "2") {
      if (values[words[4]] != words[5]) return ":-1\r\n";
      return answer({"SETNX", words[3], words[6]});
    }
    if (what == "EVAL" && words[3].ends_with(":removals")) {
      std::string& now = values[words[3]];
      const bool is_removal = words[1].contains("'DEL'");
      const std::string before = now;
      if (is_removal || now.empty()) now = words[4];
      return bulk(is_removal ? before : now);
    }
    if (what == "EVAL") {
      std::string& now = values[words[3]];
      if (now == words[4]) now = words[5];
      return bulk(now);
    }
    return "-ERR unknown command\r\n";
  }
};

}  // namespace cenote::remote
