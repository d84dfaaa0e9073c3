// A small HTTP server for tools that watch a node.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/endpoint.hpp"

namespace cenote::http {

struct page {
  std::string type;  ///< of the content, as in "text/plain"
  std::string body;
};

/// The way to make a page. One that fails is answered with 503 and the error's text, one that throws with 500.
struct page_source {
  std::function<result<page>()> make;
  bool from_memory = false;  ///< `make` never blocks: it waits for no other page
};

struct server_limits {
  std::size_t connections = 64;             ///< when there are more, the one that has been silent longest is closed
  std::chrono::milliseconds request{2000};  ///< from the connection to the request's last byte
  std::chrono::milliseconds answer{5000};   ///< from the first byte of an answer to its last
  std::chrono::milliseconds fresh{200};     ///< a page is made at most so often, for all requests meanwhile
};

/// Answers GET and HEAD requests, one a connection. Two threads, however many clients there are: one for all
/// connections, and one that makes the pages that are not made from memory. A client that sends or reads slowly
/// delays no other.
class server {
 public:
  /// Takes the port, and answers no request yet. Errors: system (the port is taken, no such address).
  [[nodiscard]] static result<std::unique_ptr<server>> bind(const endpoint& address, server_limits limits = {});
  server(const server&) = delete;
  server& operator=(const server&) = delete;
  ~server();

  /// Answers from now on. To be called once. `pages`: by path.
  void serve(std::map<std::string, page_source> pages);
  /// The address at which it listens.
  [[nodiscard]] const endpoint& address() const noexcept { return address_; }
  /// Ends the threads; takes as long as the page under way, and none is made afterwards.
  void stop() noexcept;

 private:
  class loop;
  server(endpoint address, std::unique_ptr<loop> threads);

  endpoint address_;
  std::unique_ptr<loop> loop_;
};

}  // namespace cenote::http
