// One connection of UCX: an endpoint, and the sends on it that have not ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/error.hpp"
#include "transport/ucx/handles.hpp"

namespace cenote::ucx {

/// Used by the network's thread alone. It must not be destroyed, and its worker neither, before is_closed().
class channel {
 public:
  /// `is_sent`: whether all of it went out; a send that did not ended with the connection. Called later, never by
  /// send().
  using when_sent = std::function<void(bool is_sent)>;

  /// Asks `other` for a connection, or takes one that was asked for. `on_failure` is called at most once, when the
  /// connection is found dead; the channel stays until it is told to close. Errors: system.
  [[nodiscard]] static result<std::unique_ptr<channel>> connect(std::shared_ptr<const library> from,
                                                                ucp_worker_h worker, const sockaddr* other,
                                                                socklen_t bytes, std::function<void(error)> on_failure);
  [[nodiscard]] static result<std::unique_ptr<channel>> accept(std::shared_ptr<const library> from, ucp_worker_h worker,
                                                               ucp_conn_request_h asked,
                                                               std::function<void(error)> on_failure);
  channel(const channel&) = delete;
  channel& operator=(const channel&) = delete;
  ~channel() = default;

  /// From now on its failure concerns somebody else.
  void on_failure(std::function<void(error)> call);

  /// Parts of a message that UCX gathers itself; with more of them it would send several, to be put together over
  /// there.
  static constexpr std::size_t most_parts = 12;
  using parts = std::vector<std::span<const std::byte>>;

  /// Sends an active message. The parts stay as they are until `done`; header and frame are kept here.
  void send(unsigned message, std::vector<std::byte> header, const parts& data, when_sent done);
  void send(unsigned message, std::vector<std::byte> frame);
  /// `done` is called when the other side has answered to the connection, or with false when it never will.
  void when_connected(when_sent done);
  /// Sends that have not ended, and the bytes of their frames.
  [[nodiscard]] std::size_t under_way() const noexcept { return operations_.size(); }
  [[nodiscard]] std::size_t frame_bytes() const noexcept { return frame_bytes_; }

  /// Closes by force: what is under way ends soon, by failing. May be called twice.
  void close();
  [[nodiscard]] bool is_closing() const noexcept { return is_closing_; }
  /// Nothing is under way, and UCX has let go of the endpoint.
  [[nodiscard]] bool is_closed();
  /// As UCX names it where it says who sent a message.
  [[nodiscard]] ucp_ep_h endpoint() const noexcept { return endpoint_; }
  /// Calls what has ended. True: something had.
  bool call_ended();

 private:
  struct operation {
    channel* of = nullptr;
    std::vector<std::byte> header;  ///< UCX reads it until the end of the operation
    std::vector<std::byte> frame;
    std::vector<ucp_dt_iov_t> data;  ///< likewise
    when_sent done;
    std::list<operation>::iterator self;
  };

  channel(std::shared_ptr<const library> from, std::function<void(error)> on_failure)
      : library_(std::move(from)), on_failure_(std::move(on_failure)) {}
  [[nodiscard]] static result<std::unique_ptr<channel>> open(std::shared_ptr<const library> from, ucp_worker_h worker,
                                                             ucp_ep_params_t params,
                                                             std::function<void(error)> on_failure);
  operation& begin(when_sent done);
  void post(unsigned message, operation& which);
  void started(operation& which, ucs_status_ptr_t request);
  void ended(operation& which, ucs_status_t how);
  static void end_of_operation(void* request, ucs_status_t how, void* which);
  static void end_of_connection(void* self, ucp_ep_h which, ucs_status_t why);

  std::shared_ptr<const library> library_;
  std::function<void(error)> on_failure_;
  ucp_ep_h endpoint_ = nullptr;
  std::optional<error> failure_{};  ///< found while nobody was concerned
  bool is_closing_ = false;
  bool is_unanswered_ = false;          ///< since when_connected() was called
  ucs_status_ptr_t closing_ = nullptr;  ///< UCX's request to close, while it is open
  std::list<operation> operations_;
  std::size_t frame_bytes_ = 0;
  std::vector<std::pair<when_sent, bool>> ended_;
};

}  // namespace cenote::ucx
