#include "transport/ucx/channel.hpp"

#include <utility>

namespace cenote::ucx {

namespace {

/// Of a connection that the other side closed before UCX's own greeting: mostly for the proof at its beginning.
constexpr auto unanswered =
    "the other side closed the connection unanswered, as one with another secret (cluster.secret_file) or version does";

/// What UCX's word means here, where it says something else.
std::string meaning_of(const library& from, ucs_status_t status) {
  switch (status) {
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_CONNECTION_RESET: return "the other side closed the connection";
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_REJECTED: return "nobody answers there";
    default: return from.ucs_status_string(status);
  }
}

ucp_dt_iov_t as_data(std::span<const std::byte> part) {
  return {const_cast<std::byte*>(part.data()),
          part.size()};  // NOLINT(cppcoreguidelines-pro-type-const-cast): UCX's type
}

}  // namespace

result<std::unique_ptr<channel>> channel::connect(std::shared_ptr<const library> from, ucp_worker_h worker,
                                                  const sockaddr* other, socklen_t bytes,
                                                  std::function<void(error)> on_failure) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr = {other, bytes};
  return open(std::move(from), worker, params, std::move(on_failure));
}

result<std::unique_ptr<channel>> channel::accept(std::shared_ptr<const library> from, ucp_worker_h worker,
                                                 ucp_conn_request_h asked, std::function<void(error)> on_failure) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
  params.conn_request = asked;
  return open(std::move(from), worker, params, std::move(on_failure));
}

result<std::unique_ptr<channel>> channel::open(std::shared_ptr<const library> from, ucp_worker_h worker,
                                               ucp_ep_params_t params, std::function<void(error)> on_failure) {
  std::unique_ptr<channel> made(new channel(std::move(from), std::move(on_failure)));
  params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {.cb = &end_of_connection, .arg = made.get()};
  const ucs_status_t status = made->library_->ucp_ep_create(worker, &params, &made->endpoint_);
  if (status != UCS_OK) return std::unexpected(error_of(*made->library_, "ucp_ep_create", status));
  return made;
}

channel::operation& channel::begin(when_sent done) {
  operation& made = operations_.emplace_back();
  made.of = this;
  made.done = std::move(done);
  made.self = std::prev(operations_.end());
  return made;
}

void channel::send(unsigned message, std::vector<std::byte> header, const parts& data, when_sent done) {
  operation& which = begin(std::move(done));
  which.header = std::move(header);
  for (const auto& part : data) which.data.push_back(as_data(part));
  post(message, which);
}

void channel::send(unsigned message, std::vector<std::byte> frame) {
  operation& which = begin({});
  which.frame = std::move(frame);
  which.data = {as_data(which.frame)};
  frame_bytes_ += which.frame.size();
  post(message, which);
}

void channel::post(unsigned message, operation& which) {
  ucp_request_param_t params{};
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_DATATYPE;
  params.cb.send = &end_of_operation;
  params.user_data = &which;
  // With the way to answer the receiver learns which connection it was; eager, or the receiver would have to fetch it.
  params.flags = UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_EAGER;
  const bool is_one = which.data.size() == 1;
  params.datatype = is_one ? ucp_dt_make_contig(1) : ucp_dt_make_iov();
  const void* const data = is_one ? which.data.front().buffer : which.data.data();
  const std::size_t count = is_one ? which.data.front().length : which.data.size();
  started(which, library_->ucp_am_send_nbx(endpoint_, message, which.header.data(), which.header.size(), data, count,
                                           &params));
}

void channel::when_connected(when_sent done) {
  is_unanswered_ = true;
  operation& which = begin([this, done = std::move(done)](bool is_connected) {
    is_unanswered_ = !is_connected;
    done(is_connected);
  });
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = &end_of_operation;
  params.user_data = &which;
  started(which, library_->ucp_ep_flush_nbx(endpoint_, &params));
}

void channel::started(operation& which, ucs_status_ptr_t request) {
  if (request == nullptr) {
    ended(which, UCS_OK);
  } else if (UCS_PTR_IS_ERR(request)) {
    ended(which, UCS_PTR_STATUS(request));
  }
}

void channel::ended(operation& which, ucs_status_t how) {
  if (which.done) ended_.emplace_back(std::move(which.done), how == UCS_OK);
  frame_bytes_ -= which.frame.size();
  operations_.erase(which.self);
}

void channel::end_of_operation(void* request, ucs_status_t how, void* which) {
  auto& operation_of = *static_cast<operation*>(which);
  channel& self = *operation_of.of;
  self.ended(operation_of, how);
  self.library_->ucp_request_free(request);
}

void channel::end_of_connection(void* self, ucp_ep_h /*which*/, ucs_status_t why) {
  auto& of = *static_cast<channel*>(self);
  const bool is_unanswered = of.is_unanswered_ && (why == UCS_ERR_CONNECTION_RESET || why == UCS_ERR_ENDPOINT_TIMEOUT);
  of.failure_ = error(error_code::closed, is_unanswered ? unanswered : meaning_of(*of.library_, why));
  if (of.on_failure_) std::exchange(of.on_failure_, {})(*of.failure_);
}

void channel::on_failure(std::function<void(error)> call) {
  if (failure_) return call(*failure_);
  on_failure_ = std::move(call);
}

bool channel::call_ended() {
  auto now = std::exchange(ended_, {});
  for (auto& [done, is_sent] : now) done(is_sent);
  return !now.empty();
}

void channel::close() {
  if (is_closing_) return;
  is_closing_ = true;
  on_failure_ = {};
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  closing_ = library_->ucp_ep_close_nbx(endpoint_, &params);
  if (UCS_PTR_IS_ERR(closing_)) closing_ = nullptr;
}

bool channel::is_closed() {
  if (!is_closing_) return false;
  if (closing_ != nullptr) {
    if (library_->ucp_request_check_status(closing_) == UCS_INPROGRESS) return false;
    library_->ucp_request_free(closing_);
    closing_ = nullptr;
  }
  return operations_.empty();
}

}  // namespace cenote::ucx
