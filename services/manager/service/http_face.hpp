// The manager's calls over HTTP.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "services/manager/service/call_desk.hpp"
#include "transport/http/request_handler.hpp"

namespace cenote::manager {

/// Answers `POST /api/…` of a face, and on the admin port /healthz, /metrics and /status; one object for each thread.
class http_face final : public http::request_handler {
 public:
  /// `parts` outlive it.
  http_face(rpc_face face, const face_parts& parts) : face_(face), access_(parts.access), desk_(parts) {}

  void handle(const http::http_request& request, http::http_reply& reply) override;

 private:
  /// The call or page that a request is for.
  struct request_target {
    const rpc_row* row = nullptr;  ///< null: a page
    rpc_role role = rpc_role::admin;
    std::string_view methods{};  ///< that it knows
  };

  [[nodiscard]] std::optional<request_target> target_of(std::string_view path) const noexcept;
  void check_later(const http::http_request& request, rpc_role role, http::http_reply& reply);
  void answer_call(const rpc_row& row, const http::http_request& request, const call_access& access,
                   http::http_reply& reply);
  void answer_page(std::string_view path, http::http_reply& reply);

  rpc_face face_;
  access_desk& access_;
  call_desk desk_;
};

}  // namespace cenote::manager
