// The links of a network over UCX: each has a connection for frames and, once both ends have proved who they are, one
// for blocks.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/socket_address.hpp"
#include "transport/peer/network.hpp"
#include "transport/ucx/channel.hpp"
#include "transport/ucx/handles.hpp"

namespace cenote::ucx {

/// Used by the network's thread alone.
class links {
 public:
  using clock = std::chrono::steady_clock;

  static constexpr std::size_t most_links = 1024;
  static constexpr std::size_t most_strangers = 64;  ///< connections for blocks that have not named their link
  static constexpr std::chrono::seconds stranger_limit{2};
  static constexpr std::chrono::seconds join_limit{5};  ///< from the ticket to its answer, longer than the above
  /// Of a close by force, which UCX may never end. Then the link counts as closed, and what UCX has of it is kept.
  static constexpr std::chrono::seconds close_limit{5};
  /// Of the pieces in a message. Fits into a segment (UCX_TCP_TX_SEG_SIZE) with all headers; of 512, 640, 768,
  /// 1,024 and 2,048 KiB the fastest with both cubic and bbr, see docs/benchmarks.md.
  static constexpr std::size_t message_bytes = std::size_t{768} << 10;

  /// The workers end before this object does, unless all its links have been closed.
  links(std::shared_ptr<const library> from, ucp_worker_h control, ucp_worker_h blocks, peer::network_events& events,
        std::function<peer::link_id()> take_number);

  void dial(peer::link_id which, const endpoint& other, const result<socket_address>& where);
  /// Somebody asks for a connection: handlers of the listeners, whose argument is this object.
  static void request_came(ucp_conn_request_h asked, void* self);
  static void block_request_came(ucp_conn_request_h asked, void* self);
  void send(peer::link_id to, std::vector<std::byte> frame);
  void join_blocks(peer::link_id which, const result<socket_address>& where, const peer::ticket& proof);
  void await_blocks(peer::link_id which, const peer::ticket& proof);
  void send_block(peer::link_id to, const peer::piece_header& head, std::span<const std::byte> memory);
  void close(peer::link_id which, const error& why);
  /// Takes no connections any more, either.
  void close_all(const error& why);
  /// Turns down the connections that were asked for and not taken.
  void refuse_requests(ucp_listener_h for_links, ucp_listener_h for_blocks);

  /// What follows from the progress that the workers have made. True: there was something.
  bool tend(clock::time_point now = clock::now());
  /// Nothing is open, not even what is closing.
  [[nodiscard]] bool is_empty() const noexcept { return links_.empty() && strangers_.empty(); }
  /// Frames are on their way out.
  [[nodiscard]] bool is_saying() const noexcept;
  /// When tend() has something to do though nothing has moved.
  [[nodiscard]] std::optional<clock::time_point> wake_at() const;
  [[nodiscard]] const peer::oddities& odd() const noexcept { return odd_; }

 private:
  /// A block on its way out.
  struct outgoing {
    peer::piece_header head;
    std::span<const std::byte> memory;
    std::size_t given = 0;   ///< bytes that UCX was given
    std::size_t pieces = 0;  ///< that it has not finished
    bool has_failed = false;
  };
  using outgoing_list = std::list<outgoing>;  ///< whose iterators stay when it moves from one to the other
  struct link {
    peer::link_id id = 0;
    bool is_dialled = false;
    endpoint other;
    std::unique_ptr<channel> control;
    std::unique_ptr<channel> blocks;
    std::optional<peer::ticket> awaited;
    std::optional<clock::time_point> joins_until;  ///< the other end has not answered the ticket
    bool carries_blocks = false;
    outgoing_list waiting;                          ///< of which UCX was not given all
    outgoing_list given;                            ///< of which it was, and has not finished all
    std::size_t messages = 0;                       ///< with pieces, that UCX has not finished
    std::optional<error> why;                       ///< set: it is closing
    std::optional<clock::time_point> closes_until;  ///< set while it is closing and does not count as closed
  };
  /// A connection for blocks that belongs to no link yet.
  struct stranger {
    std::unique_ptr<channel> from;
    clock::time_point until;
    std::optional<peer::ticket> proof;
  };

  [[nodiscard]] link* find(peer::link_id which);
  [[nodiscard]] link* find_open(peer::link_id which);
  link& make_link(peer::link_id which, bool is_dialled, const endpoint& other);
  void say_opened(peer::link_id which);
  void match_strangers();
  void adopt(link& to, std::unique_ptr<channel> blocks);
  void feed(link& which);
  void send_message(link& which);
  void end_message(link& which, std::span<const outgoing_list::iterator> blocks, bool is_sent);
  void end_block(link& which, outgoing_list& from, outgoing_list::iterator block, bool is_sent);
  bool take_requests();
  void take_request(ucp_conn_request_h asked);
  void take_block_request(ucp_conn_request_h asked);
  bool take_failures();
  bool end_closed();
  bool set_aside(clock::time_point now);
  bool end_strangers(clock::time_point now);
  void end_late_joins(clock::time_point now);
  [[nodiscard]] std::function<void(error)> failure_of(peer::link_id which);

  void hear_frame(ucp_ep_h from, std::span<const std::byte> frame);
  void hear_pieces(ucp_ep_h from, std::span<const std::byte> header, std::span<const std::byte> data);
  void hear_ticket(ucp_ep_h from, std::span<const std::byte> message);
  void listen_to(ucp_worker_h worker, unsigned message, ucp_am_recv_callback_t heard);
  static ucs_status_t frame_came(void* self, const void* header, std::size_t header_bytes, void* data,
                                 std::size_t bytes, const ucp_am_recv_param_t* how);
  static ucs_status_t pieces_came(void* self, const void* header, std::size_t header_bytes, void* data,
                                  std::size_t bytes, const ucp_am_recv_param_t* how);
  static ucs_status_t strange_message_came(void* self, const void* header, std::size_t header_bytes, void* data,
                                           std::size_t bytes, const ucp_am_recv_param_t* how);
  static ucs_status_t ticket_came(void* self, const void* header, std::size_t header_bytes, void* data,
                                  std::size_t bytes, const ucp_am_recv_param_t* how);

  std::shared_ptr<const library> library_;
  ucp_worker_h control_;
  ucp_worker_h blocks_;
  peer::network_events& events_;
  std::function<peer::link_id()> take_number_;
  std::unordered_map<peer::link_id, link> links_;
  std::unordered_map<ucp_ep_h, peer::link_id> by_control_;  ///< whose frames come from this endpoint
  std::unordered_map<ucp_ep_h, peer::link_id> by_blocks_;
  std::unordered_map<ucp_ep_h, stranger> strangers_;
  std::vector<ucp_conn_request_h> requests_;  ///< that came since tend(): endpoints are not made in UCX's callbacks
  std::vector<ucp_conn_request_h> block_requests_;
  std::vector<std::pair<peer::link_id, error>> failures_;  ///< found by UCX since tend()
  peer::oddities odd_;
  bool is_ending_ = false;
};

}  // namespace cenote::ucx
