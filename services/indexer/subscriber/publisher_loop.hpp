// The sockets of live batches and the rounds in which all sockets have their turns.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/error.hpp"
#include "services/indexer/subscriber/batch_sink.hpp"
#include "services/indexer/subscriber/message_source.hpp"
#include "services/indexer/subscriber/publisher_set.hpp"
#include "services/indexer/subscriber/subscriber_options.hpp"
#include "transport/zmq/poller.hpp"
#include "transport/zmq/socket.hpp"

namespace cenote::indexer {

/// Made on any thread; all else, its end too, on one. Each ready socket has its turn of so many messages or bytes in a
/// round, and none has a second one before each of the others had one.
class publisher_loop {
 public:
  /// Binds the endpoints. `wake` becomes readable when round() has to return. Errors: invalid_argument, limit_exceeded,
  /// system.
  [[nodiscard]] static result<std::unique_ptr<publisher_loop>> make(const subscriber_options& options, batch_sink& sink,
                                                                    int wake);
  publisher_loop(const publisher_loop&) = delete;
  publisher_loop& operator=(const publisher_loop&) = delete;
  ~publisher_loop();

  /// Waits until something is due or came, and gives each ready socket its turn; ends soon when `stop` is set.
  void round(const std::atomic<bool>& stop);
  /// Connects to one. Errors: invalid_argument, limit_exceeded, system.
  [[nodiscard]] result<void> add(const publisher_options& settings);
  void remove(std::string_view name);
  /// As they are bound, in the order of the options.
  [[nodiscard]] std::vector<std::string> bound_endpoints() const;
  [[nodiscard]] publisher_table table() const { return publishers_.table(); }
  /// A number that grows whenever the table may have changed by more than times.
  [[nodiscard]] std::uint64_t turns() const noexcept { return turns_; }

 private:
  using token = zmq::descriptor_poller::token;
  struct text_hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const noexcept { return std::hash<std::string_view>()(text); }
  };
  /// A bound endpoint, and the publishers that came there.
  struct bound_lane {
    std::string endpoint{};
    std::uint32_t rank = 0;
    message_source source;
    std::unordered_map<std::string, entry_number, text_hash, std::equal_to<>> topics{};
    std::map<int, std::set<entry_number>> connections{};
  };

  publisher_loop(const subscriber_options& options, batch_sink& sink, zmq::message_context live,
                 zmq::message_context replays, zmq::descriptor_poller poller);
  [[nodiscard]] result<void> bind(const ranked_endpoint& place);
  void queue(token ready);
  [[nodiscard]] bool is_stopped() const noexcept { return stop_ != nullptr && stop_->load(std::memory_order_relaxed); }
  /// True: the socket may have more.
  [[nodiscard]] bool serve(token ready);
  [[nodiscard]] bool serve_source(publisher_entry& entry);
  [[nodiscard]] bool serve_line(entry_number number);
  [[nodiscard]] bool serve_lane(std::size_t place);
  void take_bound(std::size_t place);
  [[nodiscard]] publisher_entry* obtain(std::size_t place, std::string_view topic);
  void note_connection(bound_lane& lane, publisher_entry& entry, int connection);
  void note_end(bound_lane& lane, int connection);
  void advance();
  void forget_absent();

  subscriber_options options_;
  batch_sink& sink_;
  zmq::message_context live_context_;
  zmq::descriptor_poller poller_;
  std::vector<zmq::descriptor_watch> watches_;
  publisher_set publishers_;
  std::vector<std::unique_ptr<bound_lane>> lanes_;
  std::unordered_map<std::string, entry_number, text_hash, std::equal_to<>> names_;  ///< of those that are configured
  std::deque<token> ready_;
  std::unordered_set<token> queued_;  ///< what is in ready_
  zmq::multipart_message message_;
  feed_time next_tick_{}, next_scan_{};
  std::uint64_t turns_ = 0;
  const std::atomic<bool>* stop_ = nullptr;  ///< of the round
};

}  // namespace cenote::indexer
