#pragma once
// Sends HTTP requests to a server on 127.0.0.1, and returns responses as they arrive.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>

namespace vdnn::testing {

inline sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Returns the response up to the point where the server closes the connection; empty if it does not answer.
inline std::string send_raw(std::uint16_t port, const std::string& text) {
  const int connection = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = loopback(port);
  std::string answer;
  if (::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      ::send(connection, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size())) {
    std::array<char, 4096> buffer{};
    for (ssize_t bytes = 0; (bytes = ::recv(connection, buffer.data(), buffer.size(), 0)) > 0;) {
      answer.append(buffer.data(), static_cast<std::size_t>(bytes));
    }
  }
  ::close(connection);
  return answer;
}

inline std::string request(std::uint16_t port, const std::string& method, const std::string& path,
                           const std::string& body = "") {
  std::string text = method + " " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n";
  if (!body.empty()) {
    text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  }
  return send_raw(port, text + "\r\n" + body);
}

inline std::string status_line(const std::string& answer) {
  return answer.substr(0, answer.find("\r\n"));
}

inline std::string body_of(const std::string& answer) {
  const std::size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "" : answer.substr(end + 4);
}

}  // namespace vdnn::testing
