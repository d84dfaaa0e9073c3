// What the cluster needs of a network: links between nodes that carry small frames in order, and blocks beside them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/endpoint.hpp"
#include "core/error.hpp"
#include "core/running_checksum.hpp"

namespace cenote::peer {

/// Names a link between this node and another one; never used again. 0: none.
using link_id = std::uint64_t;

/// 32 bytes that only the two ends of a link know: with them the dialling end proves that its second connection, the
/// one for blocks, belongs to that link (transport/peer/handshake.hpp makes them).
using ticket = std::array<std::byte, 32>;

/// What stands before the bytes of a piece of a block.
struct piece_header {
  std::uint64_t token = 0;     ///< the asking side's number of the transfer
  std::uint64_t offset = 0;    ///< of the piece in the block, bytes
  std::uint64_t total = 0;     ///< of the block, bytes
  std::uint64_t checksum = 0;  ///< bound to the block's name (core/stored_identity); right in the last piece
  std::uint32_t handle = 0;    ///< of the instance, as the two ends agreed on it
  std::uint16_t what = 0;      ///< whom the token belongs to: of no meaning to the network
  std::uint16_t flags = 0;     ///< none is defined

  friend bool operator==(const piece_header&, const piece_header&) = default;
};

/// Where a piece goes.
struct landing {
  std::span<std::byte> place;       ///< empty: it is thrown away
  running_checksum* sum = nullptr;  ///< takes the piece in on its way, if the network copies it; else adds nothing

  landing() = default;
  landing(std::span<std::byte> into, running_checksum* adds_to = nullptr) noexcept : place(into), sum(adds_to) {}
};

/// What a network met that was not right, since it started.
struct oddities {
  std::uint64_t strange_messages = 0;  ///< of no link, of the wrong size or form: thrown away
  std::uint64_t refused_links = 0;     ///< asked for when there were too many
  std::uint64_t strangers = 0;         ///< connections that did not prove the secret, to any network of the process
  std::uint64_t unended_closes = 0;    ///< links that count as closed though the library below has not let go of them
};

/// What a network says. All of it is said on the network's own thread; nothing said here may wait.
struct network_events {
  /// The answer to `look_up`: all addresses behind a name by which nodes reach each other, with its port; at least one.
  std::function<void(const endpoint& name, const result<std::vector<endpoint>>& addresses)> addresses;
  /// Bytes can flow. `dialled`: this node asked for the link. Nobody is known at the other end yet.
  std::function<void(link_id which, bool dialled, const endpoint& other)> opened;
  /// Exactly once for each link that was dialled or opened, and the last thing said of it but `sent`: a link is closed
  /// in time though the library below may still read blocks that were sent on it. Their `sent` follows when it does
  /// not.
  std::function<void(link_id which, const error& why)> closed;
  /// A frame; the bytes are valid during the call only.
  std::function<void(link_id from, std::span<const std::byte> frame)> heard;
  /// The link carries blocks from now on.
  std::function<void(link_id which)> carries_blocks;
  /// Where a piece of `bytes` bytes goes: memory of as many bytes, or none.
  std::function<landing(link_id from, const piece_header& head, std::size_t bytes)> expects;
  /// The piece lies where `expects` said.
  std::function<void(link_id from, const piece_header& head, std::span<const std::byte> piece)> landed;
  /// The memory of the block is the caller's again; a failure: the link closed before all of it was sent.
  std::function<void(link_id to, std::uint64_t token, const result<void>& how)> sent;
  /// After each round of the network's thread. True: there is more to do, so that it looks at its links without waiting
  /// and calls again.
  std::function<bool()> after_round;
};

/// Links to other nodes. All functions are thread-safe, wait for nothing and never fail: what went wrong is `closed`.
class network {
 public:
  network() = default;
  network(const network&) = delete;
  network& operator=(const network&) = delete;
  virtual ~network() = default;

  /// Asks the name service: `addresses` follows, after minutes where the service does not answer.
  virtual void look_up(const endpoint& name) = 0;
  /// Asks for a link: `opened` or `closed` follows.
  virtual link_id dial(const endpoint& where) = 0;
  /// Frames of a link arrive in the order in which they were sent. A link that takes none of them is closed when more
  /// than most_waiting_frames, or most_waiting_bytes of them, wait.
  virtual void send(link_id to, std::vector<std::byte> frame) = 0;
  /// Opens the way for blocks, once a link: its dialling end names where the other end waits for it …
  virtual void join_blocks(link_id which, const endpoint& where, const ticket& proof) = 0;
  /// … and the other end what it has to prove.
  virtual void await_blocks(link_id which, const ticket& proof) = 0;
  /// Sends a block, in pieces, of which a message may hold several. `memory` stays as it is until `sent` names the
  /// token.
  virtual void send_block(link_id to, const piece_header& head, std::span<const std::byte> memory) = 0;
  /// Ends a link without regard to what is under way. `closed` follows.
  virtual void close(link_id which, error why) = 0;
  /// Runs `what` on the network's thread, soon; not at all once the network has stopped.
  virtual void run(std::function<void()> what) = 0;
  [[nodiscard]] virtual oddities odd() const noexcept = 0;
  /// Sends what it was given, for a moment, then closes all links, and says so; afterwards nothing is said any more.
  /// Waits for the network's thread.
  virtual void stop() noexcept = 0;

  static constexpr std::size_t most_waiting_frames = 1024;  ///< a link
  static constexpr std::size_t most_waiting_bytes = std::size_t{16} << 20;
  static constexpr std::size_t most_frame_bytes = 1 << 20;   ///< of a frame: longer ones close the link
  static constexpr std::size_t most_messages_under_way = 8;  ///< of pieces, a link
};

}  // namespace cenote::peer
