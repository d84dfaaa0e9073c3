// A journal on a Redis or Valkey server.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "services/manager/store/journal.hpp"
#include "transport/redis/waiting_client.hpp"

namespace cenote::manager {

struct redis_journal_options {
  redis::server_access access{};
  std::string prefix{};                                         ///< of the journal's four keys, without the last colon
  std::chrono::milliseconds timeout = std::chrono::seconds(1);  ///< of a write, an epoch, a page of rows
  /// The highest epoch that journals of this process have had: a server that was put back has not seen it.
  std::shared_ptr<std::uint32_t> former_epoch = std::make_shared<std::uint32_t>(0);
  std::stop_token stop{};            ///< ends calls that wait, as if the server did not answer
  std::size_t piece_rows = 100'000;  ///< of one script; a longer batch is a transaction of several
  std::size_t piece_bytes = 64U << 20U;
};

/// Rows are fields of a hash for each kind: PREFIX:extents, PREFIX:masks, PREFIX:registry. PREFIX:epoch has the epoch
/// of the one writer and the number of its batches; each batch is a script that compares both first, so that a server
/// without the last batches takes no further one. After an error of write() nothing is taken until the next epoch: a
/// batch whose answer was lost is there before that epoch, or never.
class redis_journal final : public journal {
 public:
  /// Connects when it is first asked. Errors: system.
  [[nodiscard]] static result<std::unique_ptr<redis_journal>> make(redis_journal_options options);

  /// Above that of the server, of this process, and the Unix time in seconds, which a server that was put back does not
  /// undercut. Errors: also limit_exceeded.
  [[nodiscard]] result<std::uint32_t> raise_epoch() override;
  [[nodiscard]] result<> write(std::span<const journal_row> changes) override;
  /// Errors: also revoked: another writer has begun an epoch meanwhile; layout_mismatch.
  [[nodiscard]] result<> read(row_kind kind, const row_visitor& visit) override;

 private:
  struct row_cursor;

  redis_journal(redis_journal_options options, redis::waiting_client client)
      : options_(std::move(options)), client_(std::move(client)) {}

  [[nodiscard]] std::string key_of(std::string_view name) const { return options_.prefix + ":" + std::string(name); }
  void add_keys(std::string& command) const;
  [[nodiscard]] std::string epoch_text(std::uint64_t batches) const;
  /// A script's command with its keys, and `arguments` more to come. Empty `hash`: with the script itself.
  [[nodiscard]] std::string script_command(std::string_view hash, std::size_t arguments) const;
  [[nodiscard]] std::string piece_command(std::span<const journal_row> piece, std::string_view hash,
                                          std::uint64_t next) const;
  [[nodiscard]] std::vector<std::span<const journal_row>> pieces_of(std::span<const journal_row> changes) const;
  /// Runs commands and gives the texts of the last reply. Errors: also those that the server replies.
  [[nodiscard]] result<std::vector<std::string>> ask(std::span<const std::string> commands);
  /// The text that the script returns, or NOSCRIPT. Errors: what the connection met, and others that the server
  /// replies.
  [[nodiscard]] result<std::string> run_piece(std::span<const journal_row> piece, std::string_view hash,
                                              redis::steady_time deadline);
  [[nodiscard]] result<> write_piece(std::span<const journal_row> piece);
  [[nodiscard]] result<> write_pieces(std::span<const std::span<const journal_row>> pieces);
  [[nodiscard]] result<> read_page(row_cursor& next, row_kind kind, const row_visitor& visit);

  redis_journal_options options_;
  redis::waiting_client client_;
  std::uint32_t epoch_ = 0;    ///< none was begun, or a write has failed
  std::uint64_t batches_ = 0;  ///< that were written in it
  std::string script_hash_;    ///< of the script that writes
};

}  // namespace cenote::manager
