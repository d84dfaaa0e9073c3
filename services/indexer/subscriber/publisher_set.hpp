// All publishers: what came of them goes to their feeds, and the feeds' commands to the sink and to replay sockets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <unordered_map>

#include "core/error.hpp"
#include "services/indexer/feed/feeds.hpp"
#include "services/indexer/subscriber/batch_sink.hpp"
#include "services/indexer/subscriber/publisher_entry.hpp"
#include "services/indexer/subscriber/publisher_options.hpp"
#include "services/indexer/subscriber/publisher_table.hpp"
#include "services/indexer/subscriber/subscriber_options.hpp"
#include "services/indexer/subscriber/wire_frames.hpp"
#include "transport/zmq/message.hpp"
#include "transport/zmq/poller.hpp"
#include "transport/zmq/socket.hpp"

namespace cenote::indexer {

/// The endpoint at which publishers of a lane connect.
struct lane_identity {
  std::uint64_t lane = 0;
  std::string_view endpoint{};
  std::uint32_t rank = 0;
};

/// Belongs to one thread, on which the sink is called. Entries stay where they are until erase().
class publisher_set {
 public:
  /// The token of an entry's replay socket.
  using token_maker = zmq::descriptor_poller::token (*)(entry_number number);

  /// `context`: of replay sockets. All references outlive it.
  publisher_set(const subscriber_options& options, batch_sink& sink, zmq::message_context context,
                zmq::descriptor_poller& poller, token_maker line_token);

  /// Without a socket of its own yet. Errors: invalid_argument, limit_exceeded.
  [[nodiscard]] result<publisher_entry*> add(const publisher_options& settings);
  /// One that came with its first batch. Errors: invalid_argument (the topic), limit_exceeded.
  [[nodiscard]] result<publisher_entry*> add(const lane_identity& lane, std::string_view topic);
  /// Closes it in the sink, with its sockets.
  void erase(entry_number number);
  /// Null: there is none.
  [[nodiscard]] publisher_entry* find(entry_number number) noexcept;

  void connected(publisher_entry& entry);
  void disconnected(publisher_entry& entry);
  /// A live batch of the entry's source, whose payload it takes out of the message.
  void live(publisher_entry& entry, const wire_batch& batch, zmq::multipart_message& message);
  /// A message of the entry's replay socket, which may be gone behind it.
  void answer(publisher_entry& entry, zmq::multipart_message& message);
  /// A live message that is no batch.
  void malformed(publisher_entry& entry);

  /// Nothing listens where the entry's replay was asked for.
  void refused(publisher_entry& entry);

  /// The sink had no room for this publisher and has it now: it begins anew.
  void reopen(publisher_id publisher);
  /// Carries out what is due at this time.
  void advance();
  [[nodiscard]] feed_time wake_at() const noexcept { return feeds_.wake_at(); }
  /// Entries that have a replay socket: as many as `feeds_options` lets replay at a time.
  [[nodiscard]] const std::set<entry_number>& lines() const noexcept { return lines_; }
  [[nodiscard]] const std::map<entry_number, std::unique_ptr<publisher_entry>>& entries() const noexcept {
    return entries_;
  }
  [[nodiscard]] publisher_table table() const;
  [[nodiscard]] subscriber_counters& totals() noexcept { return totals_; }

 private:
  [[nodiscard]] result<publisher_entry*> insert(std::unique_ptr<publisher_entry> entry);
  [[nodiscard]] publisher_entry* entry_of(publisher_entry& primary, std::string_view topic);
  [[nodiscard]] publisher_entry& primary_of(publisher_entry& entry);
  [[nodiscard]] publisher_identity identity_of(const publisher_entry& entry, std::string_view topic) const;
  [[nodiscard]] bool identify(publisher_entry& entry, std::string_view topic);
  void renew(publisher_entry& entry);
  void open(publisher_entry& entry);
  void end_line(publisher_entry& entry);
  void carry_out();
  void change_connection(publisher_entry& entry, bool is_connected);
  void end_answer(publisher_entry& entry, const wire_batch& end);
  void perform(publisher_entry& entry, const feed_apply& command);
  void perform(publisher_entry& entry, const feed_clear& command);
  void perform(publisher_entry& entry, const feed_ask& command);
  void perform(publisher_entry& entry, const feed_stop& command);
  void perform(publisher_entry& entry, const feed_mark& command);

  subscriber_options options_;
  batch_sink& sink_;
  zmq::message_context context_;
  zmq::descriptor_poller& poller_;
  token_maker line_token_;
  feeds feeds_;
  std::map<entry_number, std::unique_ptr<publisher_entry>> entries_;
  std::unordered_map<publisher_id, entry_number> numbers_;
  std::set<entry_number> lines_;
  subscriber_counters totals_;
  entry_number next_ = 1;
};

}  // namespace cenote::indexer
