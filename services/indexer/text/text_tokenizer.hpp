// Tokens of texts from a process of its own, over gRPC.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/enum_names.hpp"
#include "core/error.hpp"
#include "services/indexer/http/indexer_calls.hpp"

namespace cenote::indexer {

struct tokenizer_options {
  std::string socket;                           ///< path of a Unix socket
  std::chrono::milliseconds time_limit{5'000};  ///< of a text, with the time that it waits
  std::size_t most_texts = 64;                  ///< under way at once; others are refused
  std::size_t most_bytes = std::size_t{64} << 20U;
};

/// The ends of texts. `overflow`: too many were under way. `late`: there was no answer in time. `away`: there is no
/// tokenizer.
enum class text_outcome : std::uint8_t { answered, refused, overflow, late, away };
CENOTE_ENUM_NAMES(text_outcome, answered, refused, overflow, late, away);
inline constexpr std::size_t text_outcomes = enumerators_of(text_outcome{}).size();

struct text_counters {
  std::array<std::uint64_t, text_outcomes> texts{};  ///< by text_outcome
  std::uint64_t under_way = 0;
  double seconds = 0;  ///< of all texts that were asked for, summed
};

/// Thread-safe, but for its end.
class text_tokenizer {
 public:
  text_tokenizer() = default;
  text_tokenizer(const text_tokenizer&) = delete;
  text_tokenizer& operator=(const text_tokenizer&) = delete;
  /// As stop().
  virtual ~text_tokenizer() = default;

  /// Calls `done` once, here or later on another thread, with the tokens of a text as a completion has them: with the
  /// special tokens that the model's tokenizer adds. Errors: invalid_argument (an unknown model, a text that cannot be
  /// tokenized), limit_exceeded, deadline_exceeded, not_running.
  virtual void tokenize(std::string_view model, std::string_view text, token_receiver done) = 0;
  [[nodiscard]] virtual text_counters counters() const noexcept = 0;
  /// Texts that are under way fail with not_running, and later ones. Returns when every `done` was called.
  virtual void stop() noexcept = 0;
};

/// The tokenizer need not be there yet: texts fail while it is away. Errors: unsupported (built without gRPC).
[[nodiscard]] result<std::unique_ptr<text_tokenizer>> open_tokenizer(const tokenizer_options& options);

}  // namespace cenote::indexer
