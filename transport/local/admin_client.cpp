#include "transport/local/admin_client.hpp"

#include <utility>

#include "transport/local/socket.hpp"

namespace cenote::local {

result<std::string> ask_node(const std::string& socket, std::string_view request, std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  const auto fd = connect_to(socket, until);
  if (!fd) return std::unexpected(fd.error());
  frame_header header;
  header.type = frame_type::admin;
  header.minor = 0;  // the same in all of them: a new program asks, and upgrades, the node of an earlier release
  if (auto sent = send_text(fd->get(), header, request, until); !sent) return std::unexpected(std::move(sent.error()));
  auto reply = receive_frame(fd->get(), until);
  if (!reply) {
    const auto& why = reply.error();
    if (why.code() == error_code::closed) {
      return fail(error_code::node_restarting, "the node at " + socket + " closed the connection; try again");
    }
    if (why.code() == error_code::deadline_exceeded) {
      return fail(why.code(), "the node at " + socket + " did not answer within " + std::to_string(limit.count()) +
                                  " ms; its log says what it is doing");
    }
    return std::unexpected(why);
  }
  if (reply->header.type == frame_type::failure) return std::unexpected(decode_failure(reply->payload));
  if (reply->header.type != frame_type::admin_reply)
    return fail(error_code::malformed, "the node sent something else than an answer");
  return receive_text(fd->get(), std::move(*reply), until);
}

}  // namespace cenote::local
