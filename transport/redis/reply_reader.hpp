// Replies of a Redis server, piece by piece.
#pragma once

#include <hiredis/read.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "transport/redis/server_reply.hpp"

struct redisReply;

namespace cenote::redis {

/// hiredis's reader, which is given no byte of a reply but those of the one it reads. Not thread-safe.
class reply_reader {
 public:
  /// Elements of a list, those of lists in it not among them.
  static constexpr int most_elements = 65'536;

  /// Forgets what was begun. Errors: system, there is no memory.
  [[nodiscard]] result<void> begin();
  /// Takes a line with its end, or the next bytes of a string whose length has come, string_bytes() at most. True: they
  /// were the last ones of a reply, which is in reply() until the next call. Errors: malformed.
  [[nodiscard]] result<bool> take(std::string_view bytes);
  /// Bytes of the string that is begun, its end included, that are still to come: they may be any.
  [[nodiscard]] std::size_t string_bytes() const noexcept { return string_bytes_; }
  [[nodiscard]] const server_reply& reply() const noexcept { return reply_; }
  /// Bytes of the reply that is begun.
  [[nodiscard]] std::size_t pending_bytes() const noexcept { return fed_; }

 private:
  struct free_reader {
    void operator()(redisReader* reader) const noexcept { redisReaderFree(reader); }
  };
  struct free_reply {
    void operator()(redisReply* reply) const noexcept;
  };

  void show();
  void add_texts(const redisReply& list);

  std::unique_ptr<redisReader, free_reader> reader_;
  std::unique_ptr<redisReply, free_reply> parsed_;
  std::vector<std::string_view> texts_;
  server_reply reply_;
  std::size_t fed_ = 0;
  std::size_t string_bytes_ = 0;
};

/// A server that does not speak the protocol.
[[nodiscard]] std::unexpected<error> not_the_protocol(std::string_view description);

}  // namespace cenote::redis
