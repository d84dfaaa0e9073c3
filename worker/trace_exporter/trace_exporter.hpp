// Hands spans of requests to a collector of OpenTelemetry.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "core/shared_bound.hpp"
#include "transport/http/request_client.hpp"
#include "worker/trace_exporter/otlp_document.hpp"
#include "worker/trace_exporter/trace_report.hpp"

namespace cenote::traces {

struct exporter_options {
  http::service_address collector{};
  std::string target;  ///< "/v1/traces"
  resource_texts resource{};
  std::chrono::milliseconds gather{1'000};       ///< how long spans wait for others
  std::chrono::milliseconds post_limit{5'000};   ///< of one request
  std::chrono::milliseconds first_pause{1'000};  ///< after a failure, then twice as long each time
  std::chrono::milliseconds longest_pause{8'000};
  std::chrono::milliseconds stop_limit{500};  ///< of the last requests
};

/// A thread that owns the connection. What a collector does not take in time is dropped and counted, and no caller
/// waits for it. Of what waits, each user and instance group has a share. All calls are thread-safe.
class trace_exporter {
 public:
  /// Errors: system.
  [[nodiscard]] static result<std::unique_ptr<trace_exporter>> start(exporter_options options);
  trace_exporter(const trace_exporter&) = delete;
  trace_exporter& operator=(const trace_exporter&) = delete;
  /// Hands over what waits, for `stop_limit`; less if the collector was away.
  ~trace_exporter();

  /// Takes a client's spans as far as there is room. `origin`: not null.
  void add(const share_holder& holder, const std::shared_ptr<const span_origin>& origin,
           const local::span_batch& batch);
  [[nodiscard]] trace_report report() const;

 private:
  class exporting_loop;
  explicit trace_exporter(std::shared_ptr<exporting_loop> running);

  std::shared_ptr<exporting_loop> loop_;  ///< its thread's, too: a look-up of a name may outlast this
};

}  // namespace cenote::traces
