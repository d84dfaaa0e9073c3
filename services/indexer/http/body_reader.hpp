// Bodies of the indexer's calls, JSON and binary, which any client may send.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "core/error.hpp"
#include "services/indexer/http/indexer_calls.hpp"

namespace cenote::indexer {

/// The fields of a question, whichever were sent. Valid until the reader reads again.
struct question_body {
  score_question question{};                 ///< with the salt in its extra keys
  std::optional<std::string_view> prompt{};  ///< in place of tokens
  bool has_tokens = false;                   ///< token_ids were sent, maybe none
  bool has_block_keys = false;
  std::optional<std::chrono::milliseconds> ttl{};
};

struct clear_body {
  std::string_view pod{};
  std::string_view medium{};  ///< empty: all
};

/// Reads one body after another with the same memory. What it gives is valid until it reads again. Fields that it does
/// not know are skipped; a field of another type, out of its bounds or there twice fails with invalid_argument, and a
/// text that names the field and what would be right. Not thread-safe.
class body_reader {
 public:
  static constexpr std::size_t most_tokens = question_limits::tokens;
  static constexpr std::size_t most_keys = question_limits::keys;
  static constexpr std::size_t most_pods = question_limits::pods;
  static constexpr std::size_t longest_name = 256;      ///< bytes
  static constexpr std::size_t longest_endpoint = 512;  ///< bytes
  static constexpr std::uint64_t longest_ttl_s = 3'600;

  body_reader();
  body_reader(const body_reader&) = delete;
  body_reader& operator=(const body_reader&) = delete;
  ~body_reader();

  // http_request::body_padding bytes behind `body` may be read.

  /// `{model_name, token_ids[] | prompt | block_keys[], pod_identifiers[]?, lora_name?, cache_salt?, extra_keys[]?,
  /// ttl_s?}`.
  [[nodiscard]] result<question_body> read_question(std::span<const std::byte> body);
  /// Tokens as little-endian words of 32 bits; the other fields in the query, `pod_identifiers` repeated, `extra_keys`
  /// as JSON.
  [[nodiscard]] result<question_body> read_binary_question(std::span<const std::byte> body, std::string_view query);
  /// `{name, endpoint, replay?, pod?, model?, node?, engine?}`.
  [[nodiscard]] result<publisher_settings> read_publisher(std::span<const std::byte> body);
  /// `{pod, medium?}`.
  [[nodiscard]] result<clear_body> read_clear(std::span<const std::byte> body);

 private:
  struct memory;

  void begin(std::size_t size);

  std::unique_ptr<memory> memory_;
};

}  // namespace cenote::indexer
