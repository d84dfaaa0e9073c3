// A command on its way to a Redis server, and what becomes of its reply.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "tiers/remote/backend.hpp"
#include "tiers/remote/epoch_book.hpp"
#include "tiers/remote/steady_time.hpp"
#include "tiers/remote/value.hpp"

namespace cenote::remote {

struct redis_question;

enum class request_kind : std::uint8_t {
  greet,           ///< AUTH, SELECT, PING and the trial of a write when a connection begins
  probe,           ///< TOUCH of keys of several slots when a connection begins: a Redis Cluster refuses it
  ping,            ///< does it still answer
  run,             ///< INFO when a connection begins: which run of the server it is
  look,            ///< GET of the epoch of an instance
  look_at_stamp,   ///< EVAL that gives the removal stamp of an instance, and makes one where there is none
  stamp,           ///< EVAL that puts a new removal stamp in the place of an instance's, before a removal
  renew,           ///< EVAL that sets an epoch if it is still the one that was seen
  put,             ///< SETNX; of what the server missed, EVAL that does it under a removal stamp
  get,             ///< GET of a block
  exists,          ///< EXISTS of a block
  drop,            ///< DEL of a block, for somebody
  clear,           ///< never sent itself: waits for a renewal
  discard,         ///< DEL of a value that is wrong, or of what stands in the place of an epoch, for nobody
  discard_landed,  ///< DEL of a value that landed after its removal
};

/// The memory is not touched any more once the request was abandoned.
struct redis_request {
  static constexpr std::size_t header_bytes = value_header_bytes;
  static constexpr std::size_t most_reply_bytes = std::size_t{64} << 10U;
  static constexpr bool takes_lists = false;

  request_kind kind = request_kind::ping;
  block_name name{};        ///< identity alone but for put and get
  block_key key{};          ///< of blocks
  std::uint64_t token = 0;  ///< put, get
  std::size_t size = 0;     ///< bytes of the block; kept when it is abandoned
  std::span<std::byte> memory{};
  std::optional<std::uint64_t> hash{};
  std::shared_ptr<redis_question> asked{};  ///< exists, drop
  std::size_t index = 0;                    ///< in the question
  std::size_t server = 0;                   ///< of the backend's, that it goes to
  steady_time begun{};                      ///< of the call
  steady_time deadline{};                   ///< for the answer to whoever asked
  bool is_answered = false;                 ///< the reply is for nobody
  bool has_run_over = false;                ///< put: zeros were sent for memory that was given back meanwhile
  bool is_removed = false;                  ///< put: its key was removed after its bytes had begun to go out
  epoch number = 0;  ///< that its key was made with; renew: the one proposed; look_at_stamp, stamp: the new stamp
  std::optional<steady_time> missed{};  ///< put: see item::missed
  std::uint64_t stamp = 0;              ///< put of what was missed: the removal stamp that it names
  std::uint64_t clears = 0;             ///< put, renew: of the instance, as the book counted them at its begin

  // How it goes over the wire: head, `size` bytes of memory if it has a body, tail.
  std::string head{};
  bool has_body = false;
  std::string_view tail{};
  steady_time sent{};

  [[nodiscard]] std::size_t wire_bytes() const noexcept { return head.size() + (has_body ? size : 0) + tail.size(); }
  [[nodiscard]] std::size_t value_bytes() const noexcept {
    return kind == request_kind::get || kind == request_kind::put ? size : 0;
  }
  [[nodiscard]] bool awaits_value() const noexcept { return kind == request_kind::get; }
  /// Some of its bytes went into the socket: the command may be carried out, whatever is decided here.
  [[nodiscard]] bool is_begun() const noexcept { return sent != steady_time{}; }
  /// As it was before it went out: its next command is made anew.
  void rewind() noexcept {
    head.clear();
    has_body = false;
    tail = {};
    sent = {};
  }
  /// Nobody waits for it any more, and its memory is somebody else's.
  void abandon() noexcept {
    is_answered = true;
    memory = {};
  }
};

/// Asked for many keys or of several servers. Shared by its requests, on the backend's thread alone.
struct redis_question {
  std::function<void(presence)> told{};
  /// With the numbers of the servers that did not confirm it.
  std::function<void(const result<std::uint64_t>&, const std::set<std::size_t>& silent)> dropped{};
  std::function<void(result<void>)> cleared{};
  std::size_t open = 0;  ///< keys, or servers, without an answer
  presence found{};
  std::uint64_t removed = 0;
  std::set<std::size_t> silent{};  ///< servers with a key whose removal they did not confirm
  std::optional<error> failure{};
  std::optional<error> unwritten{};  ///< clear: why it would not outlive this process
};

}  // namespace cenote::remote
