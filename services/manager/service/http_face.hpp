// The manager's calls over HTTP.
#pragma once

#include <string>

#include "services/manager/service/call_desk.hpp"
#include "transport/http/request_handler.hpp"

namespace cenote::manager {

/// Answers `POST /api/…` of a face, and on the admin port /healthz and /metrics; one object for each thread.
class http_face final : public http::request_handler {
 public:
  http_face(rpc_face face, manager_writer& writer, const call_settings& settings)
      : face_(face), writer_(writer), desk_(writer, settings) {}

  void handle(const http::http_request& request, http::http_reply& reply) override;

 private:
  void answer_call(const http::http_request& request, http::http_reply& reply);
  /// True: the path is a page.
  bool answer_page(const http::http_request& request, http::http_reply& reply);
  void write_metrics(std::string& out) const;

  rpc_face face_;
  manager_writer& writer_;
  call_desk desk_;
};

}  // namespace cenote::manager
