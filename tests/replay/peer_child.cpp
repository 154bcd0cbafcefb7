// The second process of the peer tests: serves a toy device, or misbehaves as its argument says.
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <string_view>

#include "fake_device.hpp"
#include "replay/peer.hpp"

int main(int count, char** arguments) {
  const std::string_view how = count > 1 ? arguments[1] : "serve";
  char byte = 0;
  if (how == "exit") {
    recv(3, &byte, 1, 0);
    return 9;
  }
  if (how == "die") {
    recv(3, &byte, 1, 0);
    raise(SIGKILL);
  }
  if (how == "hang") {
    while (recv(3, &byte, 1, 0) > 0) {
    }
    return 0;
  }
  if (how == "babble") {
    const unsigned char nonsense[] = {255, 255, 255, 255, 1};
    send(3, nonsense, sizeof nonsense, 0);
    while (recv(3, &byte, 1, 0) > 0) {
    }
    return 0;
  }
  emm::replay::FakeDriver driver;
  return emm::replay::serve_peer(3, driver);
}
